"""rlweave: reinforcement-learning algorithms you can see, test piece by piece, and run anywhere.

The names below are loaded on first use, so that `import rlweave` imports no deep-learning framework and takes
a few milliseconds.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# Public name -> the module that defines it; `__init__.pyi` says the same to type checkers.
_HOME = {
    "Component": "rlweave.graph",
    "api": "rlweave.graph",
    "build": "rlweave.graph",
    "graph_fn": "rlweave.graph",
    "load": "rlweave.algorithms.loading",
    "ops": "rlweave",
    "register": "rlweave.graph",
    "shared": "rlweave.graph",
    "spaces": "rlweave",
    "train": "rlweave.algorithms.run",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        from rlweave.errors import nearest

        raise AttributeError(f"module 'rlweave' has no attribute {name!r}: {nearest(name, __all__)}")
    if home == "rlweave":
        return importlib.import_module(f"rlweave.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

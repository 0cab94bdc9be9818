"""rlweave: reinforcement-learning algorithms you can see, test piece by piece, and run anywhere.

The names below are loaded on first use, so that `import rlweave` imports no deep-learning framework and takes
a few milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public name -> the module that defines it.
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

if TYPE_CHECKING:
    from rlweave import ops, spaces
    from rlweave.algorithms.loading import load
    from rlweave.algorithms.run import train
    from rlweave.graph import Component, api, build, graph_fn, register, shared

__all__ = [
    "Component",
    "__version__",
    "api",
    "build",
    "graph_fn",
    "load",
    "ops",
    "register",
    "shared",
    "spaces",
    "train",
]


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

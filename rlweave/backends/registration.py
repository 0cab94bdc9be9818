"""Announces the backends to `rlweave.ops`, each to be imported only when one of its arrays or its name turns up."""

from __future__ import annotations

import importlib
from functools import partial

from rlweave.ops.dispatch import register_loader

# Name -> top-level packages of its array types, module to import.
_BACKENDS = {
    "numpy": (("numpy",), "rlweave.backends.numpy_.ops"),
    "torch": (("torch",), "rlweave.backends.torch_.ops"),
    "jax": (("jax", "jaxlib"), "rlweave.backends.jax_.ops"),
    "tensorflow": (("tensorflow",), "rlweave.backends.tensorflow_.ops"),
    "onnx": ((), "rlweave.backends.onnx_.ops"),
}


def register_loaders() -> None:
    """Makes `ops.add(array, 1)` find its backend without any framework being imported now."""
    for name, (roots, module) in _BACKENDS.items():
        register_loader(name, roots, partial(importlib.import_module, module))

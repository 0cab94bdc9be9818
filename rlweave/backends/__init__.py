"""Numeric backends, loaded only when asked for."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from functools import partial

from rlweave.backends.base import Array, Backend, Cell
from rlweave.errors import BackendError, install_command, nearest
from rlweave.ops.dispatch import register_loader

__all__ = ["BACKENDS", "Array", "Backend", "Cell", "best_backend", "get_backend", "is_installed", "register_loaders"]

#: Backend name -> (top-level module that it needs, extra that installs it).
BACKENDS = {
    "numpy": ("numpy", ""),
    "torch": ("torch", "torch"),
    "jax": ("jax", "jax"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "onnx": ("onnxruntime", "onnx"),
}

#: Backends that learn, the best first.
LEARNING = ("jax", "torch", "tensorflow")
#: Further modules that a backend needs.
_ALSO_NEEDED = {"onnx": ("onnx",)}

#: Top-level packages of each backend's array types.
_ARRAYS = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "jax": ("jax", "jaxlib"),
    "tensorflow": ("tensorflow",),
    "onnx": (),
}


def register_loaders() -> None:
    """Makes `ops.add(array, 1)` find its backend without any framework being imported now."""
    for name, roots in _ARRAYS.items():
        register_loader(name, roots, partial(importlib.import_module, f"rlweave.backends.{name}_.ops"))


register_loaders()

_loaded: dict[str, Backend] = {}
_lock = threading.Lock()


def is_installed(name: str) -> bool:
    """Whether the framework of a backend is there (without importing it)."""
    modules = (BACKENDS[name][0], *_ALSO_NEEDED.get(name, ()))
    return all(importlib.util.find_spec(module) is not None for module in modules)


def best_backend() -> str:
    """The backend that learns where nobody names one: the first of jax, torch and tensorflow that is installed.

    JAX stands first, as it is the fastest by far where environments are in the graph, and second to none elsewhere.
    Without any of them: numpy, which acts.
    """
    return next((name for name in LEARNING if is_installed(name)), "numpy")


def get_backend(name: str) -> Backend:
    """Loads a backend on first use.

    Raises:
        BackendError: Unknown name, or framework not installed (names the extra).
    """
    if name not in BACKENDS:
        raise BackendError("unknown backend", received=repr(name), fix=nearest(str(name), BACKENDS))
    with _lock:
        if name not in _loaded:
            if not is_installed(name):
                raise BackendError(
                    f"backend {name!r} is not installed",
                    fix=f"install its extra: {install_command(BACKENDS[name][1])}",
                )
            _loaded[name] = importlib.import_module(f"rlweave.backends.{name}_").BACKEND
        return _loaded[name]

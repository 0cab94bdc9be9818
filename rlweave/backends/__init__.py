"""Numeric backends, loaded only when asked for."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import threading
from dataclasses import dataclass
from functools import partial

from rlweave.backends.base import Array, Backend, Cell
from rlweave.errors import BackendError, install_command, nearest
from rlweave.ops.dispatch import register_loader
from rlweave.plugins import load_plugin, plugin_error

__all__ = [
    "BACKENDS",
    "Array",
    "Backend",
    "BackendOffer",
    "Cell",
    "backend_names",
    "best_backend",
    "compiled_backend",
    "get_backend",
    "is_installed",
    "offer_of",
    "register_loaders",
]

#: Packages offer backends of their own by entry points of this group, each a `BackendOffer`.
ENTRY_POINT_GROUP = "rlweave.backends"


@dataclass(frozen=True)
class BackendOffer:
    """What is known of a backend before it is imported.

    Attributes:
        module: Has the backend as `BACKEND`; the module `ops` in it registers the operators.
        requires: The packages that it needs, the framework first.
        extra: The extra of rlweave that installs them.
        arrays: The top-level packages of its array types.
        acts_lightly: It acts without a framework that learns: `acting_backend="auto"` tries it.
        acts_only: It runs graphs that act, and no others.
        use: What `rlweave list` says of one that cannot learn everything.
        compiled: The module whose `BACKEND` hands runs to a compiler that a build asks for (`torch_compile`).
    """

    module: str
    requires: tuple[str, ...]
    extra: str = ""
    arrays: tuple[str, ...] = ()
    acts_lightly: bool = False
    acts_only: bool = False
    use: str = ""
    compiled: str = ""

    @property
    def installation(self) -> str:
        """The command that installs it."""
        return install_command(self.extra) if self.extra else f"pip install {' '.join(self.requires)}"


#: The backends by name. Those in `rlweave.extensions` are reached from here only, as those of other packages are.
BACKENDS = {
    "numpy": BackendOffer(
        "rlweave.backends.numpy_",
        ("numpy",),
        arrays=("numpy",),
        acts_lightly=True,
        use="acts (agent.acting_backend), and learns what needs no gradients: es",
    ),
    "torch": BackendOffer(
        "rlweave.backends.torch_", ("torch",), "torch", ("torch",), compiled="rlweave.backends.torch_.compiled"
    ),
    "jax": BackendOffer("rlweave.backends.jax_", ("jax",), "jax", ("jax", "jaxlib")),
    "tensorflow": BackendOffer("rlweave.extensions.tensorflow_", ("tensorflow",), "tensorflow", ("tensorflow",)),
    "onnx": BackendOffer(
        "rlweave.extensions.onnx_",
        ("onnxruntime", "onnx"),
        "onnx",
        acts_lightly=True,
        acts_only=True,
        use="acts only (agent.acting_backend)",
    ),
}

#: Backends that learn, the best first.
LEARNING = ("jax", "torch", "tensorflow")


def register_loaders() -> None:
    """Makes `ops.add(array, 1)` find its backend without any framework being imported now."""
    for name, offer in BACKENDS.items():
        register_loader(name, offer.arrays, partial(importlib.import_module, f"{offer.module}.ops"))


register_loaders()

_loaded: dict[str, Backend] = {}
_lock = threading.Lock()


def backend_names() -> list[str]:
    """The names of all backends, those of other packages last."""
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return list(dict.fromkeys((*BACKENDS, *sorted(point.name for point in points))))


def offer_of(name: str) -> BackendOffer | None:
    """What is known of a backend; None where there is none of that name.

    Raises:
        ConfigError: The package that offers it is broken; it is named.
    """
    if name not in BACKENDS:
        for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
            offer = load_plugin(point)
            if not isinstance(offer, BackendOffer):
                raise plugin_error(point, f"{point.value} is no BackendOffer, but of type {type(offer).__name__}")
            BACKENDS[name] = offer
    return BACKENDS.get(name)


def is_installed(name: str) -> bool:
    """Whether the framework of a backend is there (without importing it)."""
    offer = offer_of(name)
    return offer is not None and all(importlib.util.find_spec(package) is not None for package in offer.requires)


def best_backend() -> str:
    """The backend that learns by default: the first of jax, torch and tensorflow that is installed.

    JAX stands first, as it is the fastest by far where environments are in the graph, and second to none elsewhere.
    Without any of them: numpy, which acts.
    """
    return next((name for name in LEARNING if is_installed(name)), "numpy")


def get_backend(name: str) -> Backend:
    """Loads a backend on first use.

    Raises:
        BackendError: Unknown name, or framework not installed (names the extra).
    """
    if name in _loaded:
        return _loaded[name]
    offer = offer_of(name)
    if offer is None:
        raise BackendError("unknown backend", received=repr(name), fix=nearest(str(name), backend_names()))
    with _lock:
        if name not in _loaded:
            if not is_installed(name):
                raise BackendError(f"backend {name!r} is not installed", fix=f"install its extra: {offer.installation}")
            _loaded[name] = importlib.import_module(offer.module).BACKEND
        return _loaded[name]


def compiled_backend(name: str) -> Backend | None:
    """The backend with runs that go to a compiler which builds do not use unasked; None: it has no such compiler."""
    offer = offer_of(name)
    if offer is None or not offer.compiled:
        return None
    get_backend(name)  # raises the error where it is not installed
    found: Backend = importlib.import_module(offer.compiled).BACKEND
    return found

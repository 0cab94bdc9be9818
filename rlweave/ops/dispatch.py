"""Which backend an operator runs on when it is called outside a lowered graph.

Backends register themselves; this module imports none of them. A backend is any object that has every name of
`ops.OP_NAMES` as a callable: the modules `rlweave.backends.*_.ops`, or a tracer's namespace for its symbolic values.
Graph functions do not come through here when they run: lowering binds their `ops` to one backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rlweave.errors import BackendError, nearest

Array = Any
"""An array of any backend (or a symbolic value of a tracer)."""


@dataclass(frozen=True)
class _Loader:
    roots: tuple[str, ...]
    load: Callable[[], object]


_modules: dict[str, Any] = {}
_matchers: dict[str, Callable[[type], bool]] = {}
_loaders: dict[str, _Loader] = {}
# The backend of every type seen so far; "" stands for types that belong to no backend (numbers, None, strings).
_name_of_type: dict[type, str] = {}
_default: ContextVar[str] = ContextVar("rlweave_default_backend", default="numpy")


def register_backend(name: str, module: Any, matches: Callable[[type], bool]) -> None:
    """Makes an implementation of the vocabulary known; registering a name again replaces it.

    Args:
        name: What `default_backend` and errors call it.
        module: An object with a callable attribute for each name in `ops.OP_NAMES`.
        matches: Says whether arrays of a type belong to this backend.
    """
    _modules[name] = module
    _matchers[name] = matches
    _name_of_type.clear()


def register_loader(name: str, type_prefix: str | tuple[str, ...], loader: Callable[[], object]) -> None:
    """Announces a backend that is imported only when one of its arrays, or its name, turns up.

    Args:
        name: The backend's name.
        type_prefix: Top-level package(s) whose classes are its arrays, such as `"torch"` or `("jax", "jaxlib")`.
        loader: Called once; must end in `register_backend(name, ...)`.
    """
    roots = (type_prefix,) if isinstance(type_prefix, str) else tuple(type_prefix)
    _loaders[name] = _Loader(roots, loader)
    _name_of_type.clear()


def registered_backends() -> tuple[str, ...]:
    """Names of all backends that are registered or can be loaded."""
    return tuple(dict.fromkeys([*_modules, *_loaders]))


def backend_module(name: str) -> Any:
    """The implementation called `name`, loading it if necessary.

    Raises:
        BackendError: No backend has that name, or its loader did not register it.
    """
    module = _modules.get(name)
    if module is None:
        if name not in _loaders:
            raise BackendError(
                "No backend of this name is registered.",
                where="rlweave.ops",
                received=repr(name),
                fix=f"import rlweave.backends, or {nearest(name, registered_backends()) or 'register_backend(...)'}",
            )
        _loaders[name].load()
        module = _modules.get(name)
        if module is None:
            raise BackendError("The backend's loader ran but did not register it.", where=f"backend {name!r}")
    return module


@contextmanager
def default_backend(name: str) -> Iterator[None]:
    """Within this context, operators without an array argument (`ops.zeros((2,))`) run on backend `name`.

    Raises:
        BackendError: No backend has that name.
    """
    backend_module(name)
    token = _default.set(name)
    try:
        yield
    finally:
        _default.reset(token)


def implementation(*args: Any) -> Any:
    """The backend for a call with these arguments.

    The first array decides, looking inside lists, tuples and dicts; NumPy arrays give way to any other kind, because
    every backend accepts NumPy constants. Without arrays it is the default backend.
    """
    name = _find(args)
    module = _modules.get(name or _default.get())
    return module if module is not None else backend_module(name or _default.get())


def _find(args: Any) -> str:
    found = ""
    for arg in args:
        kind = type(arg)
        name = _name_of_type.get(kind)
        if name is None:
            name = _classify(kind)
        if not name and isinstance(arg, list | tuple | dict):
            name = _find(arg.values() if isinstance(arg, dict) else arg)
        if name:
            if name != "numpy":
                return name
            found = name
    return found


def _classify(kind: type) -> str:
    name = _registered(kind)
    if not name:
        roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
        for candidate, loader in _loaders.items():
            if candidate not in _modules and roots.intersection(loader.roots):
                backend_module(candidate)
                name = _registered(kind)
                break
    _name_of_type[kind] = name
    return name


def _registered(kind: type) -> str:
    # Newest first: a layer that registers itself later may claim subclasses of an earlier backend's arrays.
    for name in reversed(_matchers):
        if _matchers[name](kind):
            return name
    return ""

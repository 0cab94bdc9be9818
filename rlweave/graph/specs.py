"""Specs: components from JSON-like data, by registered name."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rlweave.errors import ConfigError, SpecError, nearest
from rlweave.graph.composition import ComponentBase, Shared
from rlweave.plugins import import_named, load_plugin
from rlweave.tree import tree_map

_registry: dict[str, type] = {}
_entry_points_loaded = False
_broken: dict[str, ConfigError] = {}

T = TypeVar("T", bound=type)

ENTRY_POINT_GROUP = "rlweave.components"


def register(name: str) -> Callable[[T], T]:
    """Class decorator: makes a component known to specs under a name.

    Raises:
        SpecError: The name is taken by another class.
    """

    def decorate(cls: T) -> T:
        other = _registry.get(name)
        # a module that runs again defines its classes again
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise SpecError(
                "two components of one spec name", received=f"{name!r}: {other} and {cls}", fix="rename one"
            )
        _registry[name] = cls
        cls.spec_type = name  # type: ignore[attr-defined]
        original = cls.__init__  # type: ignore[misc]

        def remember(self: Any, *args: Any, **kwargs: Any) -> None:
            # copies of lists and dicts: constructors may change those that they are given
            given = (
                tree_map(_itself, (args, kwargs))
                if type(self) is cls and "_spec_arguments" not in self.__dict__
                else None
            )
            original(self, *args, **kwargs)
            if given is not None:
                bound = _signature(original).bind(self, *given[0], **given[1])
                object.__setattr__(self, "_spec_arguments", dict(list(bound.arguments.items())[1:]))

        remember.__doc__, remember.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
        cls.__init__ = remember  # type: ignore[misc]
        return cls

    return decorate


def registered_components() -> dict[str, type]:
    """All registered component classes by spec name, those of installed third parties included.

    A package that cannot be loaded is left out; `broken_plugins` has the reason.
    """
    global _entry_points_loaded
    if not _entry_points_loaded:
        _entry_points_loaded = True
        for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            try:
                load_plugin(point)
            except ConfigError as error:
                _broken[point.name] = error
    return dict(_registry)


def broken_plugins() -> dict[str, ConfigError]:
    """Components of third parties that could not be loaded, by the names of their entry points."""
    registered_components()
    return dict(_broken)


def from_spec(spec: Any, base: type | None = None) -> Any:
    """Makes a component from a spec; the spec is not changed.

    Args:
        spec: A dict with "type" and constructor arguments (nested specs among them), a registered name, or a
            component, which is returned as it is. A type may also name a class to import, as "module:Class".
        base: Class that the result must be an instance of.

    Raises:
        SpecError: Unknown type or key (names the nearest right one), or a component of another kind.
    """
    if isinstance(spec, ComponentBase):
        _check_kind(type(spec), base, spec)
        return spec
    return _make(spec, base)


def _check_kind(cls: type, base: type | None, spec: Any) -> None:
    if base is not None and not issubclass(cls, base):
        raise SpecError(
            f"the spec makes no {base.__name__}", received=f"{cls.__name__} from {spec!r}", fix=_types_of(base)
        )


def _types_of(base: type) -> str:
    """The registered types of a kind, as a fix."""
    names = [name for name, cls in registered_components().items() if issubclass(cls, base)]
    return f"choose a type of {sorted(names)}" if names else "choose another type"


def _make(spec: Any, base: type | None = None) -> Any:
    if isinstance(spec, str):
        spec = {"type": spec}
    if not isinstance(spec, dict) or not isinstance(spec.get("type"), str):
        example = '{"type": "dense", "units": 64}' if base is None or _is_base(base) else _types_of(base)
        raise SpecError('a component spec is a dict with "type"', received=repr(spec)[:120], fix=example)
    arguments = dict(spec)
    name = arguments.pop("type")
    cls = _class_of(name)
    if cls is None and name in _broken:
        raise _broken[name]
    if cls is None:
        raise SpecError(
            f"unknown component type {name!r}",
            received=repr(spec)[:120],
            fix=f"{nearest(name, registered_components())}; or name a class of your own as 'module:Class'",
        )
    _check_kind(cls, base, spec)
    signature = _constructor(cls)
    allowed = [p for p in signature.parameters if p != "self"]
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for key in arguments:
        if key not in allowed and not open_ended:
            raise SpecError(f"unknown key {key!r} for {name!r}", received=repr(spec)[:120], fix=nearest(key, allowed))
    missing = [
        p.name
        for p in signature.parameters.values()
        if p.name != "self"
        and p.default is inspect.Parameter.empty
        and p.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and p.name not in arguments
    ]
    if missing:
        raise SpecError(
            f"key {missing[0]!r} is missing for {name!r}", received=repr(spec)[:120], fix=f"add {missing[0]!r}"
        )
    return cls(**{key: _argument(value) for key, value in arguments.items()})


def _class_of(name: str) -> type | None:
    """The class of a registered name, or of "module:Class", which is registered under that name; None: there is none.

    Raises:
        SpecError: The module cannot be imported, or has no such component.
    """
    classes = registered_components()
    module_name, colon, attribute = name.partition(":")
    if name in classes or not colon:
        return classes.get(name)
    fix = "install it, start where it lies, or correct the part before the colon"
    module = import_named(module_name, SpecError, "the module of a component type", received=repr(name), fix=fix)
    cls = getattr(module, attribute, None)
    if not (isinstance(cls, type) and issubclass(cls, ComponentBase)):
        components = [key for key, value in vars(module).items() if isinstance(value, type) and not _is_base(value)]
        raise SpecError(
            f"the module {module_name!r} has no component {attribute!r}",
            received=repr(name),
            fix=nearest(attribute, components),
        )
    return cls if "spec_type" in cls.__dict__ else register(name)(cls)


def _is_base(cls: type) -> bool:
    """Whether a class is `Component` itself, or stands below it, and so is no component that one can name."""
    return cls.__module__.startswith("rlweave.graph.")


def _names_component(value: Any) -> bool:
    """Whether an argument is the spec of a component."""
    name = value.get("type") if isinstance(value, dict) else None
    return isinstance(name, str) and (":" in name or name in _registry)


def _itself(leaf: Any) -> Any:
    return leaf


def _constructor(cls: Any) -> inspect.Signature:
    """The signature of a class's own `__init__`, below the wrapper that `register` puts around it."""
    return _signature(getattr(cls.__init__, "__wrapped__", cls.__init__))


@functools.lru_cache(maxsize=4096)
def _signature(constructor: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(constructor)


def _argument(value: Any) -> Any:
    if _names_component(value):
        return _make(value)
    if isinstance(value, list) and value and all(map(_names_component, value)):
        return [_make(item) for item in value]
    return copy.deepcopy(value)


def to_spec(component: Any) -> dict[str, Any]:
    """The spec that makes an equal component.

    Raises:
        SpecError: The component's class is not registered, or an argument is no data.
    """
    if component.spec_type is None or "_spec_arguments" not in component.__dict__:
        raise SpecError(
            "a component without a spec", received=repr(component), fix="decorate its class with @register(name)"
        )

    def convert(value: Any) -> Any:
        if isinstance(value, ComponentBase):
            return to_spec(value)
        if isinstance(value, (list, tuple)):
            return [convert(item) for item in value]
        if isinstance(value, dict):
            return {key: convert(item) for key, item in value.items()}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if hasattr(value, "to_json"):
            return value.to_json()
        raise SpecError("an argument cannot be written to a spec", received=repr(value)[:120], fix="use plain data")

    return {"type": component.spec_type, **{k: convert(v) for k, v in component._spec_arguments.items()}}


def computation(component: Any) -> dict[str, dict[str, Any]]:
    """What a composition computes from its weights: type and arguments of each component, by path below its root.

    Left out is what changes nothing of that: initial values, names, devices, and the spaces of inputs and outputs.
    """
    classes = registered_components()

    def is_part(value: Any) -> bool:
        """Whether an argument became a component of its own, which is visited by itself."""
        if isinstance(value, (list, tuple)):
            return bool(value) and all(map(is_part, value))
        if isinstance(value, (ComponentBase, Shared)) or _names_component(value):
            return True
        return isinstance(value, str) and value in classes

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return value.to_json() if hasattr(value, "to_json") else type(value).__qualname__

    def arguments(component: Any) -> dict[str, Any]:
        given = component.__dict__.get("_spec_arguments")
        if given is None:
            return {}
        parameters = _constructor(type(component)).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        return {
            name: plain(value)
            for name, value in (defaults | given).items()
            if name not in _WITHOUT_MEANING and "initial" not in name and not is_part(value)
        }

    top = len(component.path.split("/"))
    return {
        "/".join(part.path.split("/")[top - 1 :]): {
            "type": part.spec_type or type(part).__qualname__,
            **arguments(part),
        }
        for part in component.tree()
    }


#: Arguments of components that say nothing of what is computed from the weights.
_WITHOUT_MEANING = frozenset(("scope", "device", "trainable", "observation_space", "action_space"))

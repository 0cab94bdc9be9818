"""From a component, its class or a file of spaces to the descriptor by which it is checked."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlweave.backends import BACKENDS, is_installed, offer_of
from rlweave.errors import ConfigError, RlweaveError, nearest
from rlweave.graph import Component
from rlweave.graph.component import api_methods
from rlweave.settings.sources import read_settings_file
from rlweave.spaces import Space
from rlweave.testing.descriptors import Descriptor

#: The keys of a file of spaces: fields of a `Descriptor`, and the arguments of the component's class.
SPACES_KEYS = ("inputs", "arguments", "calls", "static")
_FIELDS = {"inputs": dict, "arguments": dict, "calls": list, "static": dict}


def described(target: Any, input_spaces: Mapping[str, Space] | None = None) -> Descriptor:
    """The descriptor of what `check` is given.

    Args:
        target: A descriptor, a component or its class.
        input_spaces: As for `check`; they go before those of a descriptor.

    Raises:
        ConfigError: It is none of these, or cannot be checked with these spaces.
    """
    if input_spaces is not None and not isinstance(input_spaces, Mapping):
        raise ConfigError(
            "the input spaces of a component are a mapping by parameter",
            where="check",
            received=f"{input_spaces!r:.100} (of type {type(input_spaces).__name__})",
            fix='pass {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}',
        )
    if isinstance(target, Descriptor):
        return _with_inputs(target, input_spaces)
    cls = target if isinstance(target, type) else type(target)
    if not issubclass(cls, Component):
        raise ConfigError(
            "only components and their descriptors are checked here",
            where="check",
            received=f"{target!r:.100} (of type {type(target).__name__})",
            fix="an agent is checked by check_agent, an environment by check_env",
        )
    own = own_descriptor(cls)
    if target is cls and own is not None:
        return _with_inputs(own, input_spaces)
    if own is not None:
        return _with_inputs(dataclasses.replace(own, make=lambda: copy.deepcopy(target)), input_spaces)
    if target is cls:
        _check_arguments(
            cls, {}, "pass a component in the place of its class, or a Descriptor that says how to make one"
        )
    make: Any = cls if target is cls else lambda: copy.deepcopy(target)
    return _of_class(Descriptor(cls.__name__, cls, make), input_spaces or {})


def own_descriptor(cls: type[Component]) -> Descriptor | None:
    """What the class method `descriptor()` of a component gives; None where it has none.

    Raises:
        ConfigError: It fails, or gives something else.
    """
    if not isinstance(inspect.getattr_static(cls, "descriptor", None), (classmethod, staticmethod)):
        return None
    where, fix = f"{cls.__name__}.descriptor", "make it a class method that returns a rlweave.testing.Descriptor"
    try:
        found = getattr(cls, "descriptor")()  # noqa: B009 (mypy knows no such attribute)
    except RlweaveError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(
            "the descriptor of a component cannot be made", where=where, received=told, fix=fix
        ) from error
    if not isinstance(found, Descriptor):
        raise ConfigError("descriptor() gives no descriptor", where=where, received=f"{found!r:.100}", fix=fix)
    return found


def of_file(target: type[Component] | Component, path: str) -> Descriptor:
    """The descriptor of a component with a file of spaces.

    Args:
        target: The component or its class.
        path: A YAML or JSON file, see `rlweave.testing.checks.everything.find`.

    Raises:
        ConfigError: The file has an unknown key or something that does not fit it.
    """
    settings = {key: value for key, value in read_settings_file(path).items() if value is not None}
    for key, value in settings.items():
        if key not in SPACES_KEYS:
            raise ConfigError("a file of spaces has an unknown key", where=path, received=repr(key),
                              fix=nearest(str(key), SPACES_KEYS))  # fmt: skip
        if not isinstance(value, _FIELDS[key]):
            wanted = "a list of API methods: [call]" if key == "calls" else f"`{key}: {{name: ...}}`"
            raise ConfigError(f"{key!r} of a file of spaces has the wrong form", where=path, received=repr(value),
                              fix=f"write {wanted}")  # fmt: skip
    for method, given in settings.get("static", {}).items():
        if not isinstance(given, dict):
            raise ConfigError("static arguments are given by method and name", where=path,
                              received=f"{method}: {given!r}", fix="write `static: {call: {name: value}}`")  # fmt: skip
    cls = target if isinstance(target, type) else type(target)
    arguments = settings.get("arguments", {})
    instance = target if isinstance(target, Component) and not arguments else None
    if instance is None:
        _check_arguments(cls, arguments, "name them under `arguments:` in the file of spaces")
    found = Descriptor(
        cls.__name__,
        cls,
        (lambda: cls(**arguments)) if instance is None else (lambda: copy.deepcopy(instance)),
        calls=tuple(settings.get("calls", ())),
        static=settings.get("static", {}),
    )
    spaces = {
        str(name): _read_space(form, f"{path}, inputs.{name}") for name, form in settings.get("inputs", {}).items()
    }
    for name in unknown_inputs(cls, spaces):
        known = [parameter for method in api_methods(cls).values() for parameter in method.parameters]
        fix = nearest(name, known) if known else "declare API methods with @api"
        raise ConfigError("no API method has such an input", where=path, received=repr(name), fix=fix)
    return _of_class(found, spaces)


def unknown_inputs(component: type[Component], names: Iterable[str]) -> list[str]:
    """The names, "parameter" or "method.parameter", that are those of no input of an API method."""
    declared = api_methods(component).items()
    known = {f"{prefix}{p}" for name, method in declared for p in method.parameters for prefix in ("", f"{name}.")}
    return [str(name) for name in names if name not in known]


def chosen_backends(backends: Sequence[str] | None) -> Sequence[str] | None:
    """Names of backends that a caller gave, which have to exist; one may be given alone.

    Raises:
        ConfigError: There is no such backend, or it is not installed.
    """
    if backends is None or backends == "all":
        return backends
    names = (backends,) if isinstance(backends, str) else backends
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        fix = 'backends=("numpy", "torch"), or "all"; leave it out for NumPy'
        raise ConfigError("backends are given by name", where="check", received=repr(backends), fix=fix)
    for name in names:
        offer = offer_of(name)
        if offer is None:
            raise ConfigError("unknown backend", where="check", received=repr(name), fix=nearest(name, BACKENDS))
        if not is_installed(name):
            fix = f"leave it out, or install it: {offer.installation}"
            raise ConfigError("a backend is not installed", where="check", received=repr(name), fix=fix)
    return tuple(names)


def _read_space(form: Any, where: str) -> Space:
    try:
        return Space.from_json(form)
    except RlweaveError as error:
        raise ConfigError(error.what, where=error.where or where, received=error.received, fix=error.fix) from error


def _check_arguments(cls: type[Component], arguments: Mapping[str, Any], fix: str) -> None:
    """Refuses a class that cannot be made with these arguments."""
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"a component cannot be made: {error}",
            where=cls.__name__,
            received=f"arguments {dict(arguments)!r}",
            fix=fix,
        ) from None


def _with_inputs(descriptor: Descriptor, spaces: Mapping[str, Space] | None) -> Descriptor:
    """The descriptor with spaces that a user gave."""
    for name, space in (spaces or {}).items():
        if not isinstance(space, Space):
            raise ConfigError(
                "the space of an input is no space of rlweave",
                where=f"{descriptor.name}, {name}",
                received=f"{space!r:.100} (of type {type(space).__name__})",
                fix="pass a FloatBox, IntBox, BoolBox, Dict or Tuple of rlweave.spaces; "
                "rlweave.spaces.gymnasium_spaces.from_gymnasium converts one of Gymnasium",
            )
    return dataclasses.replace(descriptor, input_spaces={**descriptor.input_spaces, **(spaces or {})})


def _of_class(descriptor: Descriptor, spaces: Mapping[str, Space]) -> Descriptor:
    """The descriptor of what has none of its own: an API method has to have spaces for all of its inputs."""
    declared = api_methods(descriptor.component)
    found = _with_inputs(descriptor, spaces)
    for name in (*descriptor.calls, *descriptor.static):
        if name not in declared:
            fix = nearest(str(name), declared) if declared else "declare it with @api"
            raise ConfigError("there is no such API method", where=descriptor.name, received=repr(name), fix=fix)
    lacking = found.lacking(descriptor.component)
    if lacking and len(lacking) == len(declared):
        method, names = next(iter(lacking.items()))
        raise ConfigError(
            "a component is checked with inputs, and their spaces are not known",
            where=f"{descriptor.name}.{method}",
            received=f"no space of {', '.join(map(repr, names))}",
            fix=f'pass {{"{names[0]}": FloatBox(shape=(3,), add_batch_rank=True)}}, or give the class a class method '
            "`descriptor()` that returns a rlweave.testing.Descriptor",
        )
    return found

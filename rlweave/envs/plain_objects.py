"""Which objects consist of data only, and which other parts an environment has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np


class NotData(Exception):  # noqa: N818 (it is caught where the environment is known)
    """An object holds something that is no data; names it and its place."""


#: Simulators that expose all of their state as arrays.
_SHOWS_ARRAYS = ("mujoco._structs:MjData", "mujoco._structs:MjModel")


def shown_arrays(value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a simulator, by attribute; they are its own memory.

    Values that a step computes first (contacts, constraints) are left out, or change their size at each step.
    """
    for name in dir(value):
        array = None if name.startswith("_") else getattr(value, name, None)
        if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
            yield name, array


def shows_arrays(value: Any) -> bool:
    """Whether `shown_arrays` of an object are all that its next step depends on."""
    return class_name(type(value)) in _SHOWS_ARRAYS


def offers_state(value: Any) -> bool:
    """Whether an object has `get_state()` and `set_state(state)`."""
    kind = type(value)
    get, put = getattr(kind, "get_state", None), getattr(kind, "set_state", None)
    return callable(get) and callable(put) and _takes(get, 1) and _takes(put, 2)


def constant_name(value: Any) -> str:
    """The name of a constant in messages, which differs from those of other programs' constants."""
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', None)}:{value.__qualname__}"
    return class_name(type(value))


def subspaces(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    """The spaces that a space consists of."""
    spaces = getattr(space, "spaces", ())
    return list(spaces.values() if isinstance(spaces, dict) else spaces)


def class_name(kind: type) -> str:
    """A class by its module and name."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _takes(function: Any, arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except (TypeError, ValueError):
        return False
    return True


def slots_of(kind: type) -> list[str]:
    """Names of the slots of a class, as they are called within it."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return names


def is_only_attributes(kind: type) -> bool:
    """Whether an object has no memory beside its attributes, hidden from Python."""
    pointer = np.dtype(np.intp).itemsize
    places = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0) + len(slots_of(kind))
    return (
        kind.__itemsize__ == 0 and kind is not object and kind.__basicsize__ <= object.__basicsize__ + places * pointer
    )


def attributes_of(value: Any) -> dict[str, Any]:
    """All attributes of an object itself, not of its class."""
    found = {name: getattr(value, name) for name in slots_of(type(value)) if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Gives an object exactly these attributes."""
    slots = slots_of(type(value))
    for name in slots:
        if name in attributes:
            object.__setattr__(value, name, attributes[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)
    if hasattr(value, "__dict__"):
        vars(value).clear()
        vars(value).update({name: item for name, item in attributes.items() if name not in slots})

"""What came out of Ray's object store, made this process's own."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import numpy as np

_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})
_NOTHING = ()
"""The one empty tuple: items that came without an episode have it, and need no look into it."""
_PARTS: dict[type, tuple[str, ...]] = {}
"""What `_parts_of` found, since it is asked for every item."""


def owned(value: Any, within: tuple[int, ...] = ()) -> Any:
    """A value whose arrays are this process's own: views into the object store, which pin it there, become copies.

    Changes dicts and objects in place. Looks into dicts, lists, tuples, and objects that say what they consist of:
    dataclasses, classes with ``__slots__``, and those with a ``data`` dict.

    Args:
        value: The value; it is the caller's alone.
        within: Identities of the objects that it is a part of.

    >>> view = np.zeros(2); view.flags.writeable = False
    >>> owned({"a": [view]})["a"][0].flags.writeable
    True
    """
    kind = type(value)
    if kind is np.ndarray:
        return value if value.flags.writeable else value.copy()
    if kind in _ATOMS or value is _NOTHING:
        return value
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(inner) is np.ndarray:  # the usual case, and this runs for every item
                if not inner.flags.writeable:
                    value[key] = inner.copy()
            else:
                value[key] = owned(inner, within)
        return value
    if isinstance(value, (list, tuple)):
        parts: list[Any] | None = None
        for index, inner in enumerate(value):
            if type(inner) in _ATOMS or inner is _NOTHING:
                continue  # the usual case again
            if (own := owned(inner, within)) is not inner:
                parts = parts or list(value)
                parts[index] = own
        if parts is None or isinstance(value, list):
            return value if parts is None else parts
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    names = _PARTS.get(kind)
    if names is None:
        names = _PARTS[kind] = _parts_of(kind)
    if not names:
        data = getattr(value, "data", None)
        if isinstance(data, dict):
            owned(data, within)
        return value
    if id(value) in within:
        return value  # objects may refer to each other
    within = (*within, id(value))
    for name in names:
        inner = getattr(value, name, None)
        if type(inner) not in _ATOMS and (own := owned(inner, within)) is not inner:
            object.__setattr__(value, name, own)  # also where the class is frozen
    return value


def _parts_of(kind: type) -> tuple[str, ...]:
    """Names of the attributes that objects of a class consist of, as far as it says so."""
    if kind.__module__ in ("builtins", "numpy") or issubclass(kind, type | enum.Enum):
        return ()
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(dict.fromkeys(name for name in names if not name.startswith("__")))

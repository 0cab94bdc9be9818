"""The one codec of checkpoints: items and states of operators as JSON-able data and NumPy arrays, never pickles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rlweave.errors import CheckpointError
from rlweave.flow.engine import ActorLost

_KIND = "__kind__"
_CLASSES: dict[str, Any] = {}
_KINDS: dict[type, str] = {}

Class = TypeVar("Class", bound=type)


def saved_as(kind: str) -> Callable[[Class], Class]:
    """Lets objects of a class be in checkpoints, under the name of a kind.

    The class has ``state_dict()``, which gives the arguments that make an equal object, as a dict of what can be saved.
    Where they are others, ``from_state(state)`` makes the object. A named tuple whose fields can all be saved needs
    neither.
    """

    def register(cls: Class) -> Class:
        _CLASSES[kind], _KINDS[cls] = cls, kind
        return cls

    return register


def encode(value: Any, operator: str, copy: bool = True) -> Any:
    """A snapshot of a value, as JSON-able data and arrays: later changes of the value leave it alone.

    Args:
        value: A JSON value, an array, an object of a class that is ``saved_as`` a kind, or lists, deques, tuples and
            dicts (with string keys) of them.
        operator: Name of the operator that keeps it, for the error.
        copy: Whether arrays are copied; False for large ones that nobody writes to.

    Raises:
        CheckpointError: If it is of another type.
        ActorLost: If a referenced item is lost; names it.
    """
    for base in type(value).__mro__:
        if (kind := _KINDS.get(base)) is not None:
            try:
                fields = value.state_dict() if hasattr(base, "state_dict") else list(value)
                return {_KIND: kind, "state": encode(fields, operator, copy)}
            except ActorLost as lost:
                if hasattr(base, "describe"):
                    raise ActorLost(value.describe()) from lost
                raise
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [encode(inner, operator, copy) for inner in value]
    if isinstance(value, tuple):
        return {_KIND: "tuple", "state": [encode(inner, operator, copy) for inner in value]}
    if isinstance(value, deque):
        return {_KIND: "deque", "state": [encode(inner, operator, copy) for inner in value], "maxlen": value.maxlen}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        encoded = {key: encode(inner, operator, copy) for key, inner in value.items()}
        return encoded if _KIND not in value else {_KIND: "dict", "state": [list(pair) for pair in encoded.items()]}
    if hasattr(value, "__array__"):  # of any framework
        return np.array(value) if copy else np.asarray(value)
    raise CheckpointError(
        "an item that an operator keeps cannot be put into a checkpoint",
        where=f"operator {operator!r}",
        received=type(value).__name__,
        fix="let items be SampleBatch, arrays, numbers, strings, or lists and dicts of them",
    )


def decode(value: Any, copy: bool = True) -> Any:
    """What ``encode`` described. Its arrays are copies, writable ones, unless ``copy`` is False."""
    if isinstance(value, np.ndarray):
        return np.array(value) if copy else value
    if isinstance(value, list):
        return [decode(inner, copy) for inner in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: decode(inner, copy) for key, inner in value.items()}
    if kind == "dict":
        return {key: decode(inner, copy) for key, inner in value["state"]}
    state = decode(value["state"], copy)
    if kind == "tuple":
        return tuple(state)
    if kind == "deque":
        return deque(state, value["maxlen"])
    cls = _CLASSES[kind]
    if hasattr(cls, "from_state"):
        return cls.from_state(state)
    return cls(**state) if isinstance(state, dict) else cls(*state)


def state_of(owner: Any, names: Sequence[str], operator: str) -> dict[str, Any]:
    """A snapshot of the attributes that a checkpoint keeps, by name without a leading underscore.

    What has ``load_state_dict`` is asked for its state, alone or in a list.

    Raises:
        CheckpointError: If one of them is of a type that cannot be saved.
    """
    return {name.lstrip("_"): encode(_state(getattr(owner, name)), operator) for name in names}


def _state(value: Any) -> Any:
    """What is saved of a value: its own state where it has one."""
    if _have_states(value):
        return [inner.state_dict() for inner in value]
    return value.state_dict() if hasattr(value, "load_state_dict") else value


def _have_states(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(hasattr(inner, "load_state_dict") for inner in value)


def load_state(owner: Any, names: Sequence[str], state: Mapping[str, Any]) -> None:
    """Gives an object the attributes that ``state_of`` described."""
    for name in names:
        saved, present = decode(state[name.lstrip("_")]), getattr(owner, name)
        if _have_states(present):
            for inner, own in zip(present, saved, strict=True):
                inner.load_state_dict(own)
        elif hasattr(present, "load_state_dict"):
            present.load_state_dict(saved)
        else:
            setattr(owner, name, saved)

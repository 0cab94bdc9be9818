"""The state of an environment as plain data: the contents of a pickle, without anything that executes when it is read.

`capture` walks over the attributes of an object, and of the objects in them, and keeps data: numbers, texts, arrays,
containers, random generators. `restoring` gives an equal object these attributes. Objects that are no data but equal in
every process (functions, classes, spaces) are taken from that object. Other objects, such as a simulator written in C,
cannot be captured.
"""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import logging
import math
import pathlib
import random
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec


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


Data = dict[str, Any]

_CONTAINERS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    collections.deque: "deque",
    range: "range",
    slice: "slice",
}
_MAPPINGS: dict[type, str] = {dict: "dict", collections.OrderedDict: "ordered", collections.defaultdict: "default"}
_CONSTANTS = (
    *(type, types.FunctionType, types.ModuleType, functools.partial, property, np.dtype, np.ufunc),
    *(logging.Logger, re.Pattern, pathlib.PurePath),
)

_BUILT_IN = (*_CONTAINERS, *_MAPPINGS, np.ndarray, bytes, bytearray, str, int, float)
_DRAWS = ("pygame.surface:Surface", "pygame.time:Clock", "pygame.font:Font", "pygame.freetype:Font")
"""Attributes for rendering, on which no step depends."""


def capture(value: Any) -> Data:
    """The contents of an object, as nested dicts and lists of plain values and arrays.

    An object with `get_state()` and `set_state(state)` defines its state itself; the generator of a Gymnasium
    environment is saved besides. Shared references stay shared.

    Args:
        value: Any value; usually an environment with its wrappers.

    Raises:
        NotData: It holds something that is neither data nor equal in every process.

    >>> capture([1, 0.5])
    {'value': {'node': 0}, 'nodes': [{'kind': 'list', 'items': [1, 0.5]}]}
    """
    writer = _Writer()
    return {"value": writer.encode(value, ""), "nodes": writer.nodes}


def only_data(values: Mapping[str, Any]) -> dict[str, Any]:
    """The items of a mapping that consist of data only, at every level."""
    kept = {}
    for key, value in values.items():
        try:
            nodes = capture(value)["nodes"]
        except NotData:
            continue
        if not any("type" in node or "name" in node for node in nodes):
            kept[key] = value
    return kept


def size_of(data: Any) -> int:
    """Bytes of the arrays and texts in nested data, and eight for each number."""
    if isinstance(data, np.ndarray):
        return data.nbytes
    if isinstance(data, (dict, list)):
        return sum(map(size_of, data.values() if isinstance(data, dict) else data))
    return len(data) if isinstance(data, str) else 8


class _Writer:
    """Turns values into data; each object, array and container becomes a node, so that it can be referred to."""

    def __init__(self) -> None:
        self.nodes: list[Data] = []
        self._index: dict[int, int] = {}
        self._kept: list[Any] = []  # kept alive, so that no other object gets their ids
        self._open: set[int] = set()  # containers that are being written

    def encode(self, value: Any, path: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        key = id(value)
        if key in self._open:
            raise NotData(f"{path or 'it'} contains itself")
        if key not in self._index:
            index = self._index[key] = len(self.nodes)
            self._kept.append(value)
            self.nodes.append({})
            self.nodes[index] = self._node(value, path)
        return {"node": self._index[key]}

    def _node(self, value: Any, path: str) -> Data:
        kind = type(value)
        if kind is np.ndarray:
            return self._array(value, path)
        if isinstance(value, np.generic):
            return self._scalar(value, path)
        if kind in (bytes, bytearray):
            return {"kind": kind.__name__, "value": np.frombuffer(value, np.uint8).copy()}
        if kind in _CONTAINERS:
            return self._container(value, path)
        if kind in _MAPPINGS:
            return self._mapping(value, path)
        if isinstance(value, enum.Flag):  # or several generators without a name
            return {"kind": "flag", "type": class_name(kind), "value": value.value}
        if isinstance(value, enum.Enum):
            return {"kind": "enum", "type": class_name(kind), "value": value.name}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {"kind": "named", "type": class_name(kind), "items": self._items(value, path)}
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            state = (value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator).state
            return {"kind": kind.__name__, "bits": state["bit_generator"], "state": self.encode(state, path)}
        if kind is random.Random:
            return {"kind": "Random", "state": self.encode(value.getstate(), path)}
        if isinstance(value, gymnasium.Space):
            return self._space(value, path)
        if isinstance(value, EnvSpec) or class_name(kind) in _DRAWS:
            return {"kind": "kept"}
        if value is random or value is np.random:
            raise NotData(f"{path or 'it'} is the module {value.__name__}, whose generator is everybody's")
        if isinstance(value, _CONSTANTS):
            return {"kind": "constant", "name": constant_name(value)}
        if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
            return self._method(value, path)
        if shows_arrays(value):
            arrays = {name: array.copy() for name, array in shown_arrays(value)}
            return {
                "kind": "shown",
                "name": constant_name(value),
                "arrays": arrays,
                "time": getattr(value, "time", 0.0),
            }
        return self._object(value, path)

    def _array(self, value: np.ndarray, path: str) -> Data:
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            # Arrays that share memory still do so afterwards; a view whose base is not in the state stands alone.
            if owner is not value and type(owner) is np.ndarray and owner.flags.c_contiguous:
                offset = value.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
                shape, strides = list(value.shape), list(value.strides)
                of = self.encode(owner, path)
                view = {"dtype": value.dtype.str, "offset": offset, "shape": shape, "strides": strides}
                return {"kind": "view", "of": of, **view}
            return {"kind": "array", "value": np.array(value)}
        if value.dtype.kind in "OUS":
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value.ravel().tolist())]
            return {"kind": "items", "dtype": value.dtype.str, "shape": list(value.shape), "items": items}
        raise NotData(f"{path or 'it'} is an array of {value.dtype}")

    def _scalar(self, value: np.generic, path: str) -> Data:
        if value.dtype.kind not in "biufU" or (value.dtype.itemsize > 8 and value.dtype.kind != "U"):
            raise NotData(f"{path or 'it'} is a {type(value).__name__}")
        return {"kind": "scalar", "dtype": value.dtype.str, "value": self.encode(value.item(), path)}

    def _container(self, value: Any, path: str) -> Data:
        kind = _CONTAINERS[type(value)]
        if kind in ("range", "slice"):
            return {"kind": kind, "items": self._items((value.start, value.stop, value.step), path)}
        node: Data = {"kind": kind, "items": self._items(value, path)}
        return node if kind != "deque" else {**node, "maxlen": value.maxlen}

    def _items(self, values: Any, path: str) -> list[Any]:
        # A container that cannot be filled after it is made must not be part of itself.
        final = isinstance(values, (tuple, frozenset))
        if final:
            self._open.add(id(values))
        items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(values)]
        self._open.discard(id(values))
        return items

    def _mapping(self, value: Any, path: str) -> Data:
        items = [
            [self.encode(key, f"a key of {path}"), self.encode(item, f"{path}[{key!r}]")] for key, item in value.items()
        ]
        return {"kind": _MAPPINGS[type(value)], "items": items}

    def _space(self, value: gymnasium.Space[Any], path: str) -> Data:
        children = [self.encode(child, path) for child in subspaces(value)]
        return {
            "kind": "space",
            "name": constant_name(value),
            "random": self.encode(value._np_random, path),
            "children": children,
        }

    def _method(self, value: Any, path: str) -> Data:
        owner = value.__self__
        if owner is None or isinstance(owner, _CONSTANTS):
            return {"kind": "constant", "name": constant_name(value)}
        if not isinstance(owner, (np.random.Generator, random.Random)) and type(owner) in _BUILT_IN:
            raise NotData(f"{path or 'it'} is a method of a {type(owner).__name__}")
        return {"kind": "method", "name": constant_name(value), "of": self.encode(owner, f"{path}.__self__")}

    def _object(self, value: Any, path: str) -> Data:
        kind = type(value)
        if offers_state(value):
            try:
                state = value.get_state()
            except NotImplementedError as error:
                raise NotData(f"{path or 'it'} has a get_state() that is not implemented") from error
            if state is None:
                raise NotData(f"{path or 'it'} has a get_state() that returns None")
            node: Data = {"kind": "offered", "type": class_name(kind), "state": self.encode(state, f"{path}.state")}
            if isinstance(value, gymnasium.Env):
                node["random"] = self.encode(value._np_random, path)
            return node
        if not is_only_attributes(kind):
            raise NotData(f"{path or 'it'} is a {kind.__module__}.{kind.__qualname__}, which is no plain data")
        attributes = {
            name: self.encode(item, f"{path}.{name}" if path else name) for name, item in attributes_of(value).items()
        }
        return {"kind": "object", "type": class_name(kind), "attributes": attributes}


def modules_of(target: Any) -> set[str]:
    """Modules of the classes of all objects within an object."""
    writer = _Writer()
    writer.encode(target, "")
    return {node["type"].partition(":")[0] for node in writer.nodes if "type" in node}

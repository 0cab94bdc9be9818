"""The state of an environment as plain data: what a pickle would hold, without anything that executes when it is read.

`capture` walks over the attributes of an object, and of the objects in them, and writes down what is data: numbers,
texts, arrays, containers, random generators. `restore` gives an object of the same making these attributes. What is
no data but the same in every process that makes the object (functions, classes, spaces) is taken from that object.
What can be neither, such as a simulator written in C, cannot be captured.
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
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

Data = dict[str, Any]

_MISSING: Any = object()
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
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_CONSTANTS = (
    *(type, types.FunctionType, types.ModuleType, functools.partial, property, np.dtype, np.ufunc),
    *(logging.Logger, re.Pattern, pathlib.PurePath),
)

_DRAWS = ("pygame.surface:Surface", "pygame.time:Clock", "pygame.font:Font", "pygame.freetype:Font")
"""What rendering needs; no step depends on it."""


class NotData(Exception):  # noqa: N818 (it is caught where the environment is known)
    """An object holds something that is no data; says where and what."""


def capture(value: Any) -> Data:
    """What an object holds, as nested dicts and lists of plain values and arrays.

    An object that has `get_state()` and `set_state(state)` says itself what its state is; the generator of a Gymnasium
    environment is saved besides. Shared references stay shared.

    Args:
        value: Any value; usually an environment with its wrappers.

    Raises:
        NotData: It holds something that is neither data nor the same wherever it is made.

    >>> restore(capture({"a": (1, np.arange(2))}), {})
    {'a': (1, array([0, 1]))}
    """
    writer = _Writer()
    return {"value": writer.encode(value, ""), "nodes": writer.nodes}


def restore(data: Data, target: Any) -> Any:
    """Gives an object the state of another of the same making.

    Args:
        data: What `capture` gave; arrays may have come from a file, tuples may be lists.
        target: The object; it is changed only if all of the data fits.

    Returns:
        The value: `target` itself, if that is an object.

    Raises:
        NotData: The data does not fit the object.
    """
    reader = _Reader(data["nodes"], target)
    value = reader.decode(data["value"], target, "")
    reader.apply()
    return value


def only_data(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those items of a mapping that are nothing but data, down to the last."""
    kept = {}
    for key, value in values.items():
        try:
            nodes = capture(value)["nodes"]
        except NotData:
            continue
        if not any("type" in node or "name" in node for node in nodes):
            kept[key] = value
    return kept


def offers_state(value: Any) -> bool:
    """Whether an object has `get_state()` and `set_state(state)`."""
    kind = type(value)
    get, put = getattr(kind, "get_state", None), getattr(kind, "set_state", None)
    return callable(get) and callable(put) and _takes(get, 1) and _takes(put, 2)


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
        self._kept: list[Any] = []  # as long as they live, nothing else has their id
        self._open: set[int] = set()  # tuples and the like that are being written

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
        if isinstance(value, enum.Enum):
            return {"kind": "enum", "type": _name(kind), "value": value.name}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {"kind": "named", "type": _name(kind), "items": self._items(value, path)}
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            state = (value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator).state
            return {"kind": kind.__name__, "bits": state["bit_generator"], "state": self.encode(state, path)}
        if kind is random.Random:
            return {"kind": "Random", "state": self.encode(value.getstate(), path)}
        if isinstance(value, gymnasium.Space):
            return self._space(value, path)
        if isinstance(value, EnvSpec) or _name(kind) in _DRAWS:
            return {"kind": "kept"}
        if isinstance(value, _CONSTANTS):
            return {"kind": "constant", "name": _constant_name(value)}
        if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
            return self._method(value, path)
        return self._object(value, path)

    def _array(self, value: np.ndarray, path: str) -> Data:
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            # What shares memory with another array goes on to do so; a part of nothing else stands for itself.
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
        children = [self.encode(child, path) for child in _children(value)]
        return {
            "kind": "space",
            "name": _constant_name(value),
            "random": self.encode(value._np_random, path),
            "children": children,
        }

    def _method(self, value: Any, path: str) -> Data:
        owner = value.__self__
        if owner is None or isinstance(owner, _CONSTANTS):
            return {"kind": "constant", "name": _constant_name(value)}
        if not isinstance(owner, (np.random.Generator, random.Random)) and type(owner) in _BUILT_IN:
            raise NotData(f"{path or 'it'} is a method of a {type(owner).__name__}")
        return {"kind": "method", "name": _constant_name(value), "of": self.encode(owner, f"{path}.__self__")}

    def _object(self, value: Any, path: str) -> Data:
        kind = type(value)
        if offers_state(value):
            node = {"kind": "offered", "type": _name(kind), "state": self.encode(value.get_state(), f"{path}.state")}
            if isinstance(value, gymnasium.Env):
                node["random"] = self.encode(value._np_random, path)
            return node
        if not _is_only_attributes(kind):
            raise NotData(f"{path or 'it'} is a {kind.__module__}.{kind.__qualname__}, which is no plain data")
        attributes = {
            name: self.encode(item, f"{path}.{name}" if path else name) for name, item in _attributes(value).items()
        }
        return {"kind": "object", "type": _name(kind), "attributes": attributes}


class _Reader:
    """Turns data into values, with what an object already has at the same place where that is needed.

    Objects and generators that are there stay, as methods may refer to them; they get their attributes at the end.
    A class is taken only from modules that made the object itself: data cannot name any other.
    """

    def __init__(self, nodes: list[Data], target: Any) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._claimed: set[int] = set()
        self._changes: list[Callable[[], None]] = []
        self._modules = _modules(target)

    def apply(self) -> None:
        """Makes the changes."""
        for change in self._changes:
            change()

    def decode(self, value: Any, target: Any, path: str) -> Any:
        """The value of some data, where the object has `target`."""
        if not isinstance(value, dict):
            return value
        if "float" in value:
            return float(value["float"])
        index = value["node"]
        if index not in self._made:
            self._node(index, self._nodes[index], target, path)
        return self._made[index]

    def _node(self, index: int, node: Data, target: Any, path: str) -> None:
        kind = node["kind"]
        make = getattr(self, f"_{kind.lower()}", None)
        if make is None:
            raise NotData(f"{path or 'it'} is of a kind that is not known, {kind!r}")
        made = make(index, node, target, path)
        self._made[index] = made

    # -- values ------------------------------------------------------------------------------------------------------

    def _array(self, index: int, node: Data, target: Any, path: str) -> Any:
        return np.array(node["value"])

    def _view(self, index: int, node: Data, target: Any, path: str) -> Any:
        owner = self.decode(node["of"], _MISSING, path)
        return np.ndarray(tuple(node["shape"]), np.dtype(node["dtype"]), owner, node["offset"], tuple(node["strides"]))

    def _items(self, index: int, node: Data, target: Any, path: str) -> Any:
        there = target.ravel().tolist() if isinstance(target, np.ndarray) else ()
        array = np.empty(len(node["items"]), np.dtype(node["dtype"]))
        for i, item in enumerate(self._decode_items(node["items"], there, path)):
            array[i] = item
        return array.reshape(node["shape"])

    def _scalar(self, index: int, node: Data, target: Any, path: str) -> Any:
        return np.dtype(node["dtype"]).type(self.decode(node["value"], _MISSING, path))

    def _bytes(self, index: int, node: Data, target: Any, path: str) -> Any:
        return np.asarray(node["value"], np.uint8).tobytes()

    def _bytearray(self, index: int, node: Data, target: Any, path: str) -> Any:
        return bytearray(np.asarray(node["value"], np.uint8).tobytes())

    def _enum(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._class(node["type"], path)[node["value"]]

    # -- containers --------------------------------------------------------------------------------------------------

    def _decode_items(self, items: list[Any], target: Any, path: str) -> Iterator[Any]:
        there = list(target) if isinstance(target, (list, tuple, collections.deque)) else []
        for i, item in enumerate(items):
            yield self.decode(item, there[i] if i < len(there) else _MISSING, f"{path}[{i}]")

    def _list(self, index: int, node: Data, target: Any, path: str) -> Any:
        made: list[Any] = []
        self._made[index] = made  # it may contain itself
        made.extend(self._decode_items(node["items"], target, path))
        return made

    def _deque(self, index: int, node: Data, target: Any, path: str) -> Any:
        made: collections.deque[Any] = collections.deque(maxlen=node["maxlen"])
        self._made[index] = made
        made.extend(self._decode_items(node["items"], target, path))
        return made

    def _tuple(self, index: int, node: Data, target: Any, path: str) -> Any:
        return tuple(self._decode_items(node["items"], target, path))

    def _named(self, index: int, node: Data, target: Any, path: str) -> Any:
        return tuple.__new__(self._class(node["type"], path), self._decode_items(node["items"], target, path))

    def _set(self, index: int, node: Data, target: Any, path: str) -> Any:
        return set(self._decode_items(node["items"], _MISSING, path))

    def _frozenset(self, index: int, node: Data, target: Any, path: str) -> Any:
        return frozenset(self._decode_items(node["items"], _MISSING, path))

    def _range(self, index: int, node: Data, target: Any, path: str) -> Any:
        return range(*node["items"])

    def _slice(self, index: int, node: Data, target: Any, path: str) -> Any:
        return slice(*self._decode_items(node["items"], _MISSING, path))

    def _dict(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._fill(index, {}, node, target, path)

    def _ordered(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._fill(index, collections.OrderedDict(), node, target, path)

    def _default(self, index: int, node: Data, target: Any, path: str) -> Any:
        if not isinstance(target, collections.defaultdict):
            raise NotData(f"{path or 'it'} is a defaultdict, and there is none")
        return self._fill(index, collections.defaultdict(target.default_factory), node, target, path)

    def _fill(self, index: int, made: Any, node: Data, target: Any, path: str) -> Any:
        self._made[index] = made
        there = target if isinstance(target, dict) else {}
        for key_data, item in node["items"]:
            key = self.decode(key_data, _MISSING, path)
            made[key] = self.decode(item, there.get(key, _MISSING), f"{path}[{key!r}]")
        return made

    # -- what stays where it is ------------------------------------------------------------------------------------

    def _constant(self, index: int, node: Data, target: Any, path: str) -> Any:
        if target is _MISSING or _constant_name(target) != node["name"]:
            raise NotData(f"{path or 'it'} is {node['name']}, which is no data, and something else in a new one")
        return target

    def _kept(self, index: int, node: Data, target: Any, path: str) -> Any:
        """What is made when it is asked for, and changes nothing else."""
        return None if target is _MISSING else target

    def _method(self, index: int, node: Data, target: Any, path: str) -> Any:
        method = self._constant(index, node, target, path)
        owner = getattr(method, "__self__", _MISSING)
        if self.decode(node["of"], owner, f"{path}.__self__") is not owner:
            raise NotData(f"{path or 'it'} is a method of another object in a new one")
        return method

    def _space(self, index: int, node: Data, target: Any, path: str) -> Any:
        space = self._constant(index, node, target, path)
        generator = self.decode(node["random"], space._np_random, path)
        self._changes.append(lambda: setattr(space, "_np_random", generator))
        for child, data in zip(_children(space), node["children"], strict=True):
            self.decode(data, child, path)
        return space

    def _generator(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._with_state(np.random.Generator, node, target, path)

    def _randomstate(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._with_state(np.random.RandomState, node, target, path)

    def _with_state(self, kind: Any, node: Data, target: Any, path: str) -> Any:
        if node["bits"] not in _BIT_GENERATORS:
            raise NotData(f"{path or 'it'} is a generator of an unknown kind, {node['bits']!r}")
        bits = getattr(np.random, node["bits"])
        made = target
        if type(target) is not kind or type(target._bit_generator) is not bits or not self._claim(target):
            made = kind(bits())
        state = self.decode(node["state"], _MISSING, path)
        self._changes.append(lambda: setattr(made._bit_generator, "state", state))
        return made

    def _random(self, index: int, node: Data, target: Any, path: str) -> Any:
        made = target if type(target) is random.Random and self._claim(target) else random.Random()
        state = self.decode(node["state"], _MISSING, path)
        self._changes.append(lambda: made.setstate(state))
        return made

    def _offered(self, index: int, node: Data, target: Any, path: str) -> Any:
        if target is _MISSING or _name(type(target)) != node["type"] or not self._claim(target):
            raise NotData(f"{path or 'it'} is no {node['type']} in a new one")
        self._made[index] = target
        state = self.decode(node["state"], _MISSING, f"{path}.state")
        self._changes.append(lambda: target.set_state(state))
        if "random" in node:
            generator = self.decode(node["random"], target._np_random, path)
            self._changes.append(lambda: setattr(target, "_np_random", generator))
        return target

    def _object(self, index: int, node: Data, target: Any, path: str) -> Any:
        if target is not _MISSING and _name(type(target)) == node["type"] and self._claim(target):
            made, there = target, _attributes(target)
        else:
            made, there = object.__new__(self._class(node["type"], path)), {}
        self._made[index] = made
        attributes = {
            name: self.decode(item, there.get(name, _MISSING), f"{path}.{name}" if path else name)
            for name, item in node["attributes"].items()
        }
        self._changes.append(functools.partial(_set_attributes, made, attributes))
        return made

    def _claim(self, target: Any) -> bool:
        """Whether nothing else in the data was given this object yet."""
        if id(target) in self._claimed:
            return False
        self._claimed.add(id(target))
        return True

    def _class(self, name: str, path: str) -> Any:
        module, _, qualified = name.partition(":")
        found: Any = sys.modules.get(module) if module in self._modules else None
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type) or _name(found) != name:
            raise NotData(f"{path or 'it'} is a {name}, which the environment does not have")
        is_value = issubclass(found, (tuple, enum.Enum))
        if not is_value and not _is_only_attributes(found):
            raise NotData(f"{path or 'it'} is a {name}, which is no plain data")
        return found


_BUILT_IN = (*_CONTAINERS, *_MAPPINGS, np.ndarray, bytes, bytearray, str, int, float)


def _modules(target: Any) -> set[str]:
    """Modules of the classes of all objects that an object consists of."""
    writer = _Writer()
    writer.encode(target, "")
    return {node["type"].partition(":")[0] for node in writer.nodes if "type" in node}


def _constant_name(value: Any) -> str:
    """What tells one constant from another in a message, and from a constant of a different program."""
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', None)}:{value.__qualname__}"
    return _name(type(value))


def _children(space: gymnasium.Space[Any]) -> list[gymnasium.Space[Any]]:
    spaces = getattr(space, "spaces", ())
    return list(spaces.values() if isinstance(spaces, dict) else spaces)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _takes(function: Any, arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except (TypeError, ValueError):
        return False
    return True


def _slots(kind: type) -> list[str]:
    """Names of the slots of a class, as they are called within it."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return names


def _is_only_attributes(kind: type) -> bool:
    """Whether nothing of an object is hidden from Python: its memory has room for its attributes only."""
    pointer = np.dtype(np.intp).itemsize
    places = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0) + len(_slots(kind))
    return (
        kind.__itemsize__ == 0 and kind is not object and kind.__basicsize__ <= object.__basicsize__ + places * pointer
    )


def _attributes(value: Any) -> dict[str, Any]:
    found = {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    slots = _slots(type(value))
    for name in slots:
        if name in attributes:
            object.__setattr__(value, name, attributes[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)
    if hasattr(value, "__dict__"):
        vars(value).clear()
        vars(value).update({name: item for name, item in attributes.items() if name not in slots})

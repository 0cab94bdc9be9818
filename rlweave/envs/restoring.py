"""Restores objects from the state that `rlweave.envs.object_state.capture` wrote; nothing in it is executed."""

from __future__ import annotations

import collections
import enum
import functools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlweave.envs.object_state import (
    Data,
    NotData,
    attributes_of,
    class_name,
    constant_name,
    is_only_attributes,
    modules_of,
    set_attributes,
    shown_arrays,
    subspaces,
)

_MISSING: Any = object()
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def restore(data: Data, target: Any) -> Any:
    """Gives an object the state of another one that was made in the same way.

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


class _Reader:
    """Turns data into values, with the present objects at the same place where needed.

    Present objects and generators stay, as methods may refer to them; they get their attributes at the end.
    A class is taken only from modules that made the object itself: data cannot name any other.
    """

    def __init__(self, nodes: list[Data], target: Any) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._claimed: set[int] = set()
        self._changes: list[Callable[[], None]] = []
        self._modules = modules_of(target)

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

    def _flag(self, index: int, node: Data, target: Any, path: str) -> Any:
        return self._class(node["type"], path)(node["value"])

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

    # -- objects that stay -----------------------------------------------------------------------------------------

    def _constant(self, index: int, node: Data, target: Any, path: str) -> Any:
        if target is _MISSING or constant_name(target) != node["name"]:
            raise NotData(f"{path or 'it'} is {node['name']}, which is no data, and something else in a new one")
        return target

    def _kept(self, index: int, node: Data, target: Any, path: str) -> Any:
        """Objects that are made on demand, and change nothing else."""
        return None if target is _MISSING else target

    def _method(self, index: int, node: Data, target: Any, path: str) -> Any:
        method = self._constant(index, node, target, path)
        owner = getattr(method, "__self__", _MISSING)
        if self.decode(node["of"], owner, f"{path}.__self__") is not owner:
            raise NotData(f"{path or 'it'} is a method of another object in a new one")
        return method

    def _shown(self, index: int, node: Data, target: Any, path: str) -> Any:
        """A simulator, whose own memory gets the numbers."""
        self._constant(index, node, target, path)
        there = dict(shown_arrays(target))
        arrays = {name: array for name, array in node["arrays"].items() if name in there}

        def change() -> None:
            for name, array in arrays.items():
                if there[name].shape == array.shape and there[name].flags.writeable:
                    there[name][...] = array
            if hasattr(target, "time"):
                target.time = node["time"]

        self._changes.append(change)
        return target

    def _space(self, index: int, node: Data, target: Any, path: str) -> Any:
        space = self._constant(index, node, target, path)
        generator = self.decode(node["random"], space._np_random, path)
        self._changes.append(lambda: setattr(space, "_np_random", generator))
        for child, data in zip(subspaces(space), node["children"], strict=True):
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
        if target is _MISSING or class_name(type(target)) != node["type"] or not self._claim(target):
            raise NotData(f"{path or 'it'} is no {node['type']} in a new one")
        self._made[index] = target
        state = self.decode(node["state"], _MISSING, f"{path}.state")
        self._changes.append(lambda: target.set_state(state))
        if "random" in node:
            generator = self.decode(node["random"], target._np_random, path)
            self._changes.append(lambda: setattr(target, "_np_random", generator))
        return target

    def _object(self, index: int, node: Data, target: Any, path: str) -> Any:
        if target is not _MISSING and class_name(type(target)) == node["type"] and self._claim(target):
            made, there = target, attributes_of(target)
        else:
            made, there = object.__new__(self._class(node["type"], path)), {}
        self._made[index] = made
        attributes = {
            name: self.decode(item, there.get(name, _MISSING), f"{path}.{name}" if path else name)
            for name, item in node["attributes"].items()
        }
        self._changes.append(functools.partial(set_attributes, made, attributes))
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
        if not isinstance(found, type) or class_name(found) != name:
            raise NotData(f"{path or 'it'} is a {name}, which the environment does not have")
        is_value = issubclass(found, (tuple, enum.Enum))
        if not is_value and not is_only_attributes(found):
            raise NotData(f"{path or 'it'} is a {name}, which is no plain data")
        return found

"""Spaces of nested arguments, and of what a declared method says that it returns."""

from __future__ import annotations

from typing import Any

from rlweave.graph.decorators import describe
from rlweave.graph.ir import Structure, Value
from rlweave.graph.values import spaces_of
from rlweave.graph.variable import VariableCollection
from rlweave.spaces import Box, Dict, Space, Tuple
from rlweave.tree import flatten_tree


def to_space(argument: Structure) -> Any:
    """The space of a nested argument; variable collections and other constants stay what they are."""
    if isinstance(argument, Value):
        return argument.space
    if isinstance(argument, dict):
        items = {key: to_space(value) for key, value in argument.items()}
        if all(isinstance(value, Space) for value in items.values()) and all(
            isinstance(key, str) and key and "/" not in key for key in items
        ):
            return Dict(items)
        return items
    if isinstance(argument, (tuple, list)):
        parts = [to_space(value) for value in argument]
        return Tuple(*parts) if all(isinstance(part, Space) for part in parts) else tuple(parts)
    if isinstance(argument, (Space, VariableCollection)):
        return argument
    try:
        return spaces_of(argument)
    except KeyError:
        return argument


def nested_boxes(result: Any) -> Structure:
    """A space, or nested spaces, as nested dicts and tuples of boxes."""
    if isinstance(result, Dict):
        return {key: nested_boxes(value) for key, value in result.items()}
    if isinstance(result, Tuple):
        return tuple(nested_boxes(value) for value in result)
    if isinstance(result, dict):
        return {key: nested_boxes(value) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple(nested_boxes(value) for value in result)
    return result


def same_features(one: Any, other: Any) -> bool:
    """Whether two spaces (or collections, or constants) are the same, ranks apart."""
    if isinstance(one, Box) and isinstance(other, Box):  # most inputs: worth a short way
        return one.shape == other.shape and one.dtype == other.dtype
    return bool(_features(one) == _features(other))


def _features(space: Any) -> Any:
    if isinstance(space, VariableCollection):
        return tuple(space.keys())
    if isinstance(space, Space):
        return tuple((path, leaf.shape, leaf.dtype) for path, leaf in space.flatten().items())
    if isinstance(space, (dict, tuple, list)):
        return tuple((path, _features(leaf)) for path, leaf in flatten_tree(space).items())
    return describe(space)

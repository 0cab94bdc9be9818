"""Values of inputs and results, their spaces, and the variables among arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.graph.decorators import describe
from rlweave.graph.ir import Node, Structure, Value
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.spaces import Box, Dict, Space, Tuple, from_axes
from rlweave.tree import flatten_tree, leaves_of, map_with_key, tree_map


def same(x: Any) -> Any:
    """Graph function body of a value with other roles of its axes."""
    return x


def make_inputs(argument: Structure, name: str) -> Structure:
    """Input values for a nested structure of spaces; other leaves stay constants."""

    def make(key: tuple[Any, ...], leaf: Any) -> Any:
        return Value(leaf, None, key, name) if isinstance(leaf, Box) else leaf

    return map_with_key(make, argument)


def make_result(node: Node, spaces: Structure) -> Structure:
    """Result values of a node for a nested structure of spaces; constants stay."""
    if isinstance(spaces, Box):
        return Value(spaces, node)
    return map_with_key(lambda key, leaf: Value(leaf, node, key) if isinstance(leaf, Box) else leaf, spaces)


def spaces_of(structure: Structure) -> Structure:
    """Replaces values by their spaces and numbers by scalar boxes."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return leaf.space
        if isinstance(leaf, (bool, int, float, np.ndarray, np.generic)):
            array = np.asarray(leaf)
            kind = {"f": "float32", "i": "int32", "u": "uint8", "b": "bool"}[array.dtype.kind]
            return from_axes(array.shape, kind)
        return leaf

    return tree_map(convert, structure)


def variables_of_arguments(args: Structure) -> list[Variable]:
    """Variables of all collections among the arguments."""
    return [variable for collection in leaves_of(args, VariableCollection) for variable in collection]


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
    """Whether two spaces (or collections, or constants) are the same, ranks apart.

    Floats may be of any width: where a backend has 32 bits only, or values are normalized, float64 is float32.
    """
    if isinstance(one, Box) and isinstance(other, Box):  # most inputs: worth a short way
        return one.shape == other.shape and (one.dtype == other.dtype or _kind(one) == _kind(other) == "float")
    return bool(_features(one) == _features(other))


def _kind(leaf: Box) -> str:
    return "float" if leaf.dtype.startswith("float") else leaf.dtype


def _features(space: Any) -> Any:
    if isinstance(space, VariableCollection):
        return tuple(space.keys())
    if isinstance(space, Space):
        return tuple((path, leaf.shape, _kind(leaf)) for path, leaf in space.flatten().items())
    if isinstance(space, (dict, tuple, list)):
        return tuple((path, _features(leaf)) for path, leaf in flatten_tree(space).items())
    return describe(space)

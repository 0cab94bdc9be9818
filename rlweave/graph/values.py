"""Values of inputs and results, their spaces, and the variables among arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.graph.ir import Node, Structure, Value
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.spaces import Box, from_axes
from rlweave.tree import leaves_of, map_with_key, tree_map


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

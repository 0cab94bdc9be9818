"""Calls of graph functions: what is bound, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.graph.ir import Call, Value
from rlweave.graph.variable import VariableCollection
from rlweave.tree import tree_map


def bind_node_function(binder: Any, node: Call, cell_of: Any, fixed_cells: bool = True) -> Any:
    """The bound callable of a call node.

    Args:
        binder: The binder of its place.
        node: A call.
        cell_of: The cell of each variable.
        fixed_cells: Every call finds the same cells, substituted ones apart, and so gets the same callable.
    """
    if node.plain:
        name = node.op
        return getattr(binder.ops, name) if name else binder.rebind(node.function)
    # by the function itself and not by its name: an API method may call a graph function of its super-class
    make_method = binder.known_method if fixed_cells and not node.substitution else binder.method
    return make_method(node.function, node.component, cell_of)


def fill_arguments(
    node: Call, arrays: list[Any], collection: Any, constant: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a node with arrays for its values, in `leaves_of` order; NumPy constants by `constant`."""
    remaining = iter(arrays)

    def fill(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return next(remaining)
        if isinstance(leaf, np.ndarray):
            return constant(leaf)
        return collection(leaf) if isinstance(leaf, VariableCollection) else leaf

    args = tree_map(fill, node.args)
    return args, tree_map(fill, node.kwargs)

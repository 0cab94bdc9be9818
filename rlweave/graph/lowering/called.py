"""What generated code calls besides the runtime of its backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.backends import Cell
from rlweave.tree import tree_map


def own(cell: Cell) -> None:
    """Gives a cell an array of its own, after it was assigned one that somebody else may hold."""
    value = cell.value
    copy = value.clone() if hasattr(value, "clone") else value.copy()
    cell.assign(copy)


def unshared(result: Any, cells: tuple[Cell, ...]) -> Any:
    """Copies what shares memory with a variable on the host: abstract evaluation has not seen this function."""

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        held = any(
            leaf is cell.value or (leaf.base is not None and np.may_share_memory(leaf, cell.value)) for cell in cells
        )
        return leaf.copy() if held else leaf

    return tree_map(fresh, result)


def values_of_cells(cells: tuple[Cell, ...]) -> tuple[Any, ...]:
    """The arrays of cells."""
    return tuple([cell.value for cell in cells])


def set_cells(cells: tuple[Cell, ...], values: tuple[Any, ...]) -> None:
    """Gives cells new arrays."""
    for cell, value in zip(cells, values, strict=True):
        cell.value = value

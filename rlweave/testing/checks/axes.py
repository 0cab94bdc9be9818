"""Which rows of the batch, or which time steps, of an array differ from those of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import numpy as np

from rlweave.spaces import Box, Dim


class Along(Enum):
    """A leading rank."""

    BATCH = "B"
    TIME = "T"


def positions(space: Box, shape: tuple[int, ...], along: Along, sizes: Mapping[str, int]) -> np.ndarray | None:
    """Which row (or time step) each entry of an array belongs to.

    Args:
        space: Of the array.
        shape: Of the array.
        along: Batch or time.
        sizes: Sizes of "B" and "T"; fixed ranks have their own.

    Returns:
        Integers that broadcast to the shape; None for an array without such an axis, or with an axis that mixes it
        with others in an unknown way.
    """
    found = [i for i, dim in enumerate(space.axes) if isinstance(dim, Dim) and _has(dim, along)]
    if len(found) != 1:
        return None
    axis = found[0]
    dim = space.axes[axis]
    assert isinstance(dim, Dim)
    if dim.factor != 1:
        return None
    steps = np.arange(shape[axis])
    if len(dim.symbols) == 2:  # folded, (T, B) -> T*B
        other = dim.symbols[1]
        rows = Dim((other,)).evaluate(sizes)
        if dim.offset or other[0] != Along.BATCH.value or dim.symbols[0][0] != Along.TIME.value or rows == 0:
            return None
        steps = steps % rows if along is Along.BATCH else steps // rows
    elif len(dim.symbols) != 1:
        return None
    return steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _has(dim: Dim, along: Along) -> bool:
    return any(symbol[0] == along.value for symbol in dim.symbols)


def differs(one: np.ndarray, other: np.ndarray, tolerance: float) -> np.ndarray:
    """Which entries of two arrays of one shape differ by more than a share of their size; NaN equals NaN."""
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    with np.errstate(all="ignore"):
        close = np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    return np.asarray(~close)


def moved(
    space: Box,
    one: np.ndarray,
    other: np.ndarray,
    along: Along,
    sizes: Mapping[str, int],
    tolerance: float = 1e-5,
) -> frozenset[int] | None:
    """The rows (or time steps) in which two arrays differ; None: they differ, and have no such axis."""
    if one.shape != other.shape:
        return None
    different = differs(one, other, tolerance)
    if not different.any():
        return frozenset()
    where = positions(space, one.shape, along, sizes)
    if where is None:
        return None
    return frozenset(np.unique(np.broadcast_to(where, one.shape)[different]).tolist())


def replaced(
    space: Box, array: np.ndarray, other: np.ndarray, along: Along, index: int, sizes: Mapping[str, int]
) -> np.ndarray:
    """An array with one row (or time step) of another one; the array itself where it has no such axis."""
    where = positions(space, array.shape, along, sizes)
    return array if where is None else np.where(where == index, other, array)


def kept(
    space: Box, array: np.ndarray, along: Along, wanted: Callable[[np.ndarray], np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray | None:
    """An array without some rows (or time steps).

    Args:
        space: Of the array.
        array: The array.
        along: Batch or time.
        wanted: Tells of the numbers of rows (or time steps) which ones stay.
        sizes: Sizes of the ranks.

    Returns:
        A part of the array; None where it has no such axis.
    """
    where = positions(space, array.shape, along, sizes)
    if where is None:
        return None
    axis = next(i for i, dim in enumerate(space.axes) if isinstance(dim, Dim) and _has(dim, along))
    return np.take(array, np.flatnonzero(wanted(where.reshape(-1))), axis=axis)

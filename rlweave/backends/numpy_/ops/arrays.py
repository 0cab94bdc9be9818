"""Making, reshaping, ordering and indexing arrays on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.elementwise import _narrowed

Array = Any
Shape = int | Sequence[int]


_NARROW = {"d": np.dtype("float32"), "l": np.dtype("int32"), "q": np.dtype("int32")}


def asarray(x: Array, dtype: str | None = None) -> Array:
    if dtype is not None:
        return np.asarray(x, dtype)
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    result = np.asarray(x)
    narrow = _NARROW.get(result.dtype.char)
    return result if narrow is None else result.astype(narrow)


def array_of(x: Array) -> Array:
    """Makes an array of anything that is none."""
    return x if isinstance(x, np.ndarray) else asarray(x)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return np.ones(shape, dtype)


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return np.full(shape, fill_value, dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    return np.arange(start, stop, step, np.dtype(dtype))  # type: ignore[call-overload]


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    return np.linspace(start, stop, num, dtype=dtype)


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    return np.eye(n_rows, n_cols, dtype=dtype)


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.zeros(x.shape, dtype or x.dtype)


def ones_like(x: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.ones(x.shape, dtype or x.dtype)


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.full(x.shape, fill_value, dtype or x.dtype)


def astype(x: Array, dtype: str) -> Array:
    return np.asarray(x).astype(dtype, copy=False)


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return array_of(x).reshape(shape)


def expand_dims(x: Array, axis: int) -> Array:
    x = array_of(x)
    if axis == 0:
        return x[None]
    return x[..., None] if axis == -1 else np.expand_dims(x, axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    return array_of(x).squeeze(axis)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return array_of(x).transpose(axes)


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    result = np.concatenate(arrays, axis)
    return result if result.dtype.char == "f" else _narrowed_join(result, arrays)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    result = np.stack(arrays, axis)
    return result if result.dtype.char == "f" else _narrowed_join(result, arrays)


def _narrowed_join(result: Array, arrays: Sequence[Array]) -> Array:
    return _narrowed(result, *arrays) if result.dtype.char in "dlq" else result


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    x = array_of(x)
    return tuple(x if axis == 0 else np.moveaxis(x, axis, 0))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return np.broadcast_to(array_of(x), tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    return np.flip(array_of(x), axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return np.roll(array_of(x), shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return array_of(x).repeat(repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return np.tile(array_of(x), tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    result = np.sort(array_of(x), axis=axis, stable=True)
    return np.flip(result, axis) if descending else result


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    x = array_of(x)
    if not descending:
        return x.argsort(axis=axis, stable=True).astype(np.int32)
    # Sorting the reversed array and reversing the result keeps equal elements in their order.
    order = np.flip(np.flip(x, axis).argsort(axis=axis, stable=True), axis)
    return (x.shape[axis] - 1 - order).astype(np.int32)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    return np.asarray(np.searchsorted(x1, x2, side)).astype(np.int32)  # type: ignore[call-overload]


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    return np.asarray(x).take(indices, axis)


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    return np.take_along_axis(x, indices, axis)


def take_last(x: Array, indices: Array) -> Array:
    # take_along_axis builds an index array per axis (15 us); one flat index takes 3.
    indices = np.asarray(indices)
    size = x.shape[-1]
    rows = np.arange(0, indices.size * size, size)
    return x.reshape(-1).take(rows + indices.reshape(-1)).reshape(indices.shape)


def set_at(x: Array, indices: Array, values: Array) -> Array:
    # NumPy assigns in order, so the last of equal indices wins.
    result = np.array(x)
    result[np.asarray(indices)] = values
    return result


def add_at(x: Array, indices: Array, values: Array) -> Array:
    result = np.array(x)
    np.add.at(result, np.asarray(indices), np.asarray(values, result.dtype))
    return result

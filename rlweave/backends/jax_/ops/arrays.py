"""Making, reshaping, ordering and indexing arrays on JAX.

Indices are promised to be in range, which spares the checks that JAX would compile in.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any
Shape = int | Sequence[int]


# Without 64-bit types JAX would warn on each request for one.
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


def jax_dtype(dtype: Any) -> str:
    """The dtype that JAX has in place of the named one."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    return _NARROW.get(name, name)


def asarray(x: Array, dtype: str | None = None) -> Array:
    if dtype is not None:
        return jnp.asarray(x, jax_dtype(dtype))
    result = jnp.asarray(x)
    # A number becomes an array of its own dtype, no longer one that adapts to the other operand.
    return result if hasattr(x, "dtype") else jnp.asarray(result, result.dtype)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return jnp.zeros(shape, jax_dtype(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return jnp.ones(shape, jax_dtype(dtype))


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return jnp.full(shape, fill_value, jax_dtype(dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    return jnp.arange(start, stop, step, jax_dtype(dtype))


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    return jnp.linspace(start, stop, num, dtype=jax_dtype(dtype))


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    return jnp.eye(n_rows, n_cols, dtype=jax_dtype(dtype))


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    return jnp.zeros_like(x, dtype=None if dtype is None else jax_dtype(dtype))


def ones_like(x: Array, dtype: str | None = None) -> Array:
    return jnp.ones_like(x, dtype=None if dtype is None else jax_dtype(dtype))


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    return jnp.full_like(x, fill_value, dtype=None if dtype is None else jax_dtype(dtype))


def astype(x: Array, dtype: str) -> Array:
    return jnp.asarray(x).astype(jax_dtype(dtype))


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return jnp.reshape(x, shape)


def expand_dims(x: Array, axis: int) -> Array:
    return jnp.expand_dims(x, axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    return jnp.squeeze(x, axis)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return jnp.transpose(x, tuple(axes))


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    return jnp.concatenate(arrays, axis)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    return jnp.stack(arrays, axis)


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    return tuple(jnp.unstack(x, axis=axis))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return jnp.broadcast_to(x, tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    return jnp.flip(x, axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return jnp.roll(x, shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return jnp.repeat(x, repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return jnp.tile(x, tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return jnp.sort(x, axis, descending=descending)


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return jnp.argsort(x, axis, stable=True, descending=descending)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    return jnp.searchsorted(x1, x2, side)


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    return jnp.take(x, jnp.asarray(indices), axis, mode="clip")


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    return jnp.take_along_axis(x, jnp.asarray(indices), axis, mode="clip")


def take_last(x: Array, indices: Array) -> Array:
    return jnp.take_along_axis(x, jnp.expand_dims(jnp.asarray(indices), -1), -1, mode="clip").squeeze(-1)


def set_at(x: Array, indices: Array, values: Array) -> Array:
    x = jnp.asarray(x)
    indices, values = _rows(x, indices, values)
    if indices.shape[0] > 1:
        # Every duplicate writes the row of the last one, so the undefined order of the scatter does not matter.
        values = values[_last_writers(indices, x.shape[0])]
    return x.at[indices].set(values)


def _rows(x: Array, indices: Array, values: Array) -> tuple[Array, Array]:
    """Indices as (K,) and values as (K, ...) of the dtype of x."""
    indices = jnp.asarray(indices)
    values = jnp.broadcast_to(jnp.asarray(values, x.dtype), (*indices.shape, *x.shape[1:]))
    return indices.reshape(-1), values.reshape((indices.size, *x.shape[1:]))


def _last_writers(indices: Array, size: int) -> Array:
    """For each position in `indices`, the last position that holds the same index."""
    count = indices.shape[0]
    positions = jnp.arange(count, dtype=jnp.int32)
    if count * count <= 4 * size + 4096:
        return jnp.max(jnp.where(indices[:, None] == indices, positions, -1), 1)
    latest = jnp.zeros(size, jnp.int32).at[indices].max(positions)
    return latest[indices]


def add_at(x: Array, indices: Array, values: Array) -> Array:
    x = jnp.asarray(x)
    indices, values = _rows(x, indices, values)
    return x.at[indices].add(values)

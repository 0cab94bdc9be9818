"""Indexing on JAX. Indices are promised to be in range, which spares the checks that JAX would compile in."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

Array = Any


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

"""Reductions on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any
Axis = int | tuple[int, ...] | None


def _sum_dtype(x: Array) -> Any:
    return None if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.int32


def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.sum(x, axis, _sum_dtype(x), keepdims=keepdims)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.mean(x, axis, keepdims=keepdims)


def prod(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.prod(x, axis, _sum_dtype(x), keepdims=keepdims)


def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.max(x, axis, keepdims=keepdims)


def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.min(x, axis, keepdims=keepdims)


def any(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.any(x, axis, keepdims=keepdims)


def all(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.all(x, axis, keepdims=keepdims)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    variance = jnp.var(x, axis, keepdims=keepdims)
    # The root of 0 has an infinite gradient, which times the variance's own 0 is NaN: keep 0 away from the root.
    constant = variance == 0
    return jnp.where(constant, 0, jnp.sqrt(jnp.where(constant, 1, variance)))


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jnp.var(x, axis, keepdims=keepdims)


def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return jax.nn.logsumexp(x, axis, keepdims=keepdims)


def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    return jnp.argmax(x, axis, keepdims=keepdims)


def argmin(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    return jnp.argmin(x, axis, keepdims=keepdims)


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    if axis is None:
        if jnp.ndim(x) != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {jnp.ndim(x)} axes.")
        axis = 0
    return jnp.cumsum(x, axis, dtype=_sum_dtype(x))

"""Reductions on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlweave.backends.doubling import check_decays, doubling
from rlweave.backends.jax_.ops.arrays import concat, zeros_like

Array = Any
Axis = int | tuple[int, ...] | None


def _sum_dtype(x: Array) -> Any:
    return None if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.int32


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        return function(x, axis, keepdims=keepdims)

    return call


def _total(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        return function(x, axis, _sum_dtype(x), keepdims=keepdims)

    return call


sum = _total(jnp.sum)
prod = _total(jnp.prod)
mean = _reduction(jnp.mean)
max = _reduction(jnp.max)
min = _reduction(jnp.min)
any = _reduction(jnp.any)
all = _reduction(jnp.all)
var = _reduction(jnp.var)
logsumexp = _reduction(jax.nn.logsumexp)
argmax = _reduction(jnp.argmax)
argmin = _reduction(jnp.argmin)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    variance = jnp.var(x, axis, keepdims=keepdims)
    # The root of 0 has an infinite gradient, which times the variance's own 0 is NaN: keep 0 away from the root.
    constant = variance == 0
    return jnp.where(constant, 0, jnp.sqrt(jnp.where(constant, 1, variance)))


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    if axis is None:
        if jnp.ndim(x) != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {jnp.ndim(x)} axes.")
        axis = 0
    return jnp.cumsum(x, axis, dtype=_sum_dtype(x))


_doubled = doubling(jnp.asarray, concat, zeros_like)


def discounted_sums(x: Array, decays: Array) -> Array:
    if jax.default_backend() != "cpu":
        return _doubled(x, decays)
    x, decays = jnp.asarray(x), jnp.asarray(decays)
    check_decays(x, decays)
    dtype = jnp.result_type(x, decays)
    x, decays = x.astype(dtype), decays.astype(dtype)
    # on a CPU a loop runs faster, and compiles in a fifth of the time

    def step(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        total = row[0] + row[1] * following
        return total, total

    return jax.lax.scan(step, jnp.zeros(x.shape[1:], x.dtype), (x, decays), reverse=True)[1]

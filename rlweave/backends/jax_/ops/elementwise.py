"""Elementwise operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def abs(x: Array) -> Array:
    # The gradient of jnp.abs at 0 is 1; that of x * sign(x) is 0, as in torch.
    return x * jnp.sign(x) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.abs(x)


def negative(x: Array) -> Array:
    return jnp.negative(x)


def exp(x: Array) -> Array:
    return jnp.exp(x)


def expm1(x: Array) -> Array:
    return jnp.expm1(x)


def log(x: Array) -> Array:
    return jnp.log(x)


def log1p(x: Array) -> Array:
    return jnp.log1p(x)


def sqrt(x: Array) -> Array:
    return jnp.sqrt(x)


def square(x: Array) -> Array:
    return jnp.square(x)


def sign(x: Array) -> Array:
    return jnp.sign(x)


def sin(x: Array) -> Array:
    return jnp.sin(x)


def cos(x: Array) -> Array:
    return jnp.cos(x)


def tanh(x: Array) -> Array:
    return jnp.tanh(x)


def floor(x: Array) -> Array:
    return jnp.floor(x)


def ceil(x: Array) -> Array:
    return jnp.ceil(x)


def round(x: Array) -> Array:
    return jnp.round(x)


def isfinite(x: Array) -> Array:
    return jnp.isfinite(x)


def isnan(x: Array) -> Array:
    return jnp.isnan(x)


def logical_not(x: Array) -> Array:
    return jnp.logical_not(x)


def lgamma(x: Array) -> Array:
    return jax.scipy.special.gammaln(x)


def erf(x: Array) -> Array:
    return jax.scipy.special.erf(x)


def add(x1: Array, x2: Array) -> Array:
    return jnp.add(x1, x2)


def subtract(x1: Array, x2: Array) -> Array:
    return jnp.subtract(x1, x2)


def multiply(x1: Array, x2: Array) -> Array:
    return jnp.multiply(x1, x2)


def divide(x1: Array, x2: Array) -> Array:
    return jnp.true_divide(x1, x2)


def floor_divide(x1: Array, x2: Array) -> Array:
    return jnp.floor_divide(x1, x2)


def remainder(x1: Array, x2: Array) -> Array:
    return jnp.remainder(x1, x2)


def pow(x1: Array, x2: Array) -> Array:
    return jnp.power(x1, x2)


def minimum(x1: Array, x2: Array) -> Array:
    return jnp.minimum(x1, x2)


def maximum(x1: Array, x2: Array) -> Array:
    return jnp.maximum(x1, x2)


def equal(x1: Array, x2: Array) -> Array:
    return jnp.equal(x1, x2)


def not_equal(x1: Array, x2: Array) -> Array:
    return jnp.not_equal(x1, x2)


def less(x1: Array, x2: Array) -> Array:
    return jnp.less(x1, x2)


def less_equal(x1: Array, x2: Array) -> Array:
    return jnp.less_equal(x1, x2)


def greater(x1: Array, x2: Array) -> Array:
    return jnp.greater(x1, x2)


def greater_equal(x1: Array, x2: Array) -> Array:
    return jnp.greater_equal(x1, x2)


def logical_and(x1: Array, x2: Array) -> Array:
    return jnp.logical_and(x1, x2)


def logical_or(x1: Array, x2: Array) -> Array:
    return jnp.logical_or(x1, x2)


def bitwise_and(x1: Array, x2: Array) -> Array:
    return jnp.bitwise_and(x1, x2)


def bitwise_or(x1: Array, x2: Array) -> Array:
    return jnp.bitwise_or(x1, x2)


def bitwise_xor(x1: Array, x2: Array) -> Array:
    return jnp.bitwise_xor(x1, x2)


def bitwise_left_shift(x1: Array, x2: Array) -> Array:
    return jnp.left_shift(x1, x2)


def bitwise_right_shift(x1: Array, x2: Array) -> Array:
    return jnp.right_shift(x1, x2)


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    limited = x if min is None else jnp.maximum(x, min)
    limited = limited if max is None else jnp.minimum(limited, max)
    # Where nothing was cut x itself is selected, so that its gradient at a bound is 1 and not the half of a tie.
    return jnp.where(limited == x, x, limited)


def where(condition: Array, x1: Array, x2: Array) -> Array:
    return jnp.where(condition, x1, x2)

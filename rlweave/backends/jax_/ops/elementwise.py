"""Elementwise operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any


negative = jnp.negative
exp = jnp.exp
expm1 = jnp.expm1
log = jnp.log
log1p = jnp.log1p
sqrt = jnp.sqrt
square = jnp.square
sign = jnp.sign
sin = jnp.sin
cos = jnp.cos
tanh = jnp.tanh
floor = jnp.floor
ceil = jnp.ceil
isfinite = jnp.isfinite
isnan = jnp.isnan
logical_not = jnp.logical_not
lgamma = jax.scipy.special.gammaln
erf = jax.scipy.special.erf

add = jnp.add
subtract = jnp.subtract
multiply = jnp.multiply
divide = jnp.true_divide
floor_divide = jnp.floor_divide
remainder = jnp.remainder
pow = jnp.power
minimum = jnp.minimum
maximum = jnp.maximum
equal = jnp.equal
not_equal = jnp.not_equal
less = jnp.less
less_equal = jnp.less_equal
greater = jnp.greater
greater_equal = jnp.greater_equal
logical_and = jnp.logical_and
logical_or = jnp.logical_or
bitwise_and = jnp.bitwise_and
bitwise_or = jnp.bitwise_or
bitwise_xor = jnp.bitwise_xor
bitwise_left_shift = jnp.left_shift
bitwise_right_shift = jnp.right_shift


def abs(x: Array, /) -> Array:
    # The gradient of jnp.abs at 0 is 1; that of x * sign(x) is 0, as in torch.
    return x * jnp.sign(x) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.abs(x)


def round(x: Array, /) -> Array:
    return jnp.round(x)


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    limited = x if min is None else jnp.maximum(x, min)
    limited = limited if max is None else jnp.minimum(limited, max)
    # Where nothing was cut x itself is selected, so that its gradient at a bound is 1 and not the half of a tie.
    return jnp.where(limited == x, x, limited)


def where(condition: Array, x1: Array, x2: Array) -> Array:
    return jnp.where(condition, x1, x2)

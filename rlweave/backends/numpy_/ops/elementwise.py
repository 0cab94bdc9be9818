"""Elementwise operators on NumPy.

NumPy promotes mixtures with integers to float64 and small integers to float16; `_narrowed` brings such results back to
float32 unless a float64 array went in. The check on the usual path is one comparison of a character.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.numpy_.special import error_function, log_gamma

Array = Any

_FLOAT32 = np.dtype("float32")
_WIDE = frozenset("dlq")


def _narrowed(result: Array, *inputs: Array) -> Array:
    """A 64-bit result as 32-bit, unless an input is a 64-bit array of that kind."""
    char = result.dtype.char
    chars = {x.dtype.char for x in inputs if hasattr(x, "dtype")}
    if char == "d":
        return result if "d" in chars else result.astype(_FLOAT32)
    return result if chars & {"l", "q"} else result.astype(np.int32)


def _real(function: Callable[[Array], Array], x: Array) -> Array:
    """`function` of something that is not float32: float64 stays, everything else is converted first."""
    if getattr(x, "dtype", None) == np.float64:
        return function(x)
    return function(np.asarray(x, _FLOAT32))


def _of_reals(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An operator with real results."""

    def call(x: Array, /) -> Array:
        result = function(x)
        return result if result.dtype.char == "f" else _real(function, x)

    return call


def _unary(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An operator that keeps the dtype."""

    def call(x: Array, /) -> Array:
        result = function(x)
        return result if result.dtype.char not in _WIDE else _narrowed(result, x)

    return call


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """An operator whose result has the common dtype."""

    def call(x1: Array, x2: Array, /) -> Array:
        result = function(x1, x2)
        return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)

    return call


exp = _of_reals(np.exp)
expm1 = _of_reals(np.expm1)
log = _of_reals(np.log)
log1p = _of_reals(np.log1p)
sqrt = _of_reals(np.sqrt)
sin = _of_reals(np.sin)
cos = _of_reals(np.cos)
tanh = _of_reals(np.tanh)

abs = _unary(np.absolute)
negative = _unary(np.negative)
square = _unary(np.square)
sign = _unary(np.sign)
floor = _unary(np.floor)
ceil = _unary(np.ceil)

add = _binary(np.add)
subtract = _binary(np.subtract)
multiply = _binary(np.multiply)
divide = _binary(np.true_divide)
floor_divide = _binary(np.floor_divide)
remainder = _binary(np.remainder)
pow = _binary(np.power)
minimum = _binary(np.minimum)
maximum = _binary(np.maximum)

isfinite = np.isfinite
isnan = np.isnan
equal = np.equal
not_equal = np.not_equal
less = np.less
less_equal = np.less_equal
greater = np.greater
greater_equal = np.greater_equal
logical_not = np.logical_not
logical_and = np.logical_and
logical_or = np.logical_or
bitwise_and = np.bitwise_and
bitwise_or = np.bitwise_or
bitwise_xor = np.bitwise_xor
bitwise_left_shift = np.left_shift
bitwise_right_shift = np.right_shift


def round(x: Array, /) -> Array:
    result = np.rint(x)
    if result.dtype.char == "f":
        return result
    x = np.asarray(x)
    return x if x.dtype.kind in "biu" else _narrowed(result, x)


def lgamma(x: Array, /) -> Array:
    return log_gamma(x) if getattr(x, "dtype", None) == np.float64 else log_gamma(x).astype(_FLOAT32)


def erf(x: Array, /) -> Array:
    return error_function(x) if getattr(x, "dtype", None) == np.float64 else error_function(x).astype(_FLOAT32)


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    # np.clip spends several microseconds in Python; two ufuncs take one.
    result = x if min is None else np.maximum(x, min)
    result = result if max is None else np.minimum(result, max)
    if result is x:
        return np.asarray(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x, min, max)


def where(condition: Array, x1: Array, x2: Array) -> Array:
    result: Array = np.where(condition, x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)

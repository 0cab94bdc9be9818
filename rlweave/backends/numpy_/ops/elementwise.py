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


def exp(x: Array) -> Array:
    result = np.exp(x)
    return result if result.dtype.char == "f" else _real(np.exp, x)


def expm1(x: Array) -> Array:
    result = np.expm1(x)
    return result if result.dtype.char == "f" else _real(np.expm1, x)


def log(x: Array) -> Array:
    result = np.log(x)
    return result if result.dtype.char == "f" else _real(np.log, x)


def log1p(x: Array) -> Array:
    result = np.log1p(x)
    return result if result.dtype.char == "f" else _real(np.log1p, x)


def sqrt(x: Array) -> Array:
    result = np.sqrt(x)
    return result if result.dtype.char == "f" else _real(np.sqrt, x)


def sin(x: Array) -> Array:
    result = np.sin(x)
    return result if result.dtype.char == "f" else _real(np.sin, x)


def cos(x: Array) -> Array:
    result = np.cos(x)
    return result if result.dtype.char == "f" else _real(np.cos, x)


def tanh(x: Array) -> Array:
    result = np.tanh(x)
    return result if result.dtype.char == "f" else _real(np.tanh, x)


def abs(x: Array) -> Array:
    result = np.absolute(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def negative(x: Array) -> Array:
    result = np.negative(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def square(x: Array) -> Array:
    result = np.square(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def sign(x: Array) -> Array:
    result = np.sign(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def floor(x: Array) -> Array:
    result = np.floor(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def ceil(x: Array) -> Array:
    result = np.ceil(x)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x)


def round(x: Array) -> Array:
    result = np.rint(x)
    if result.dtype.char == "f":
        return result
    x = np.asarray(x)
    return x if x.dtype.kind in "biu" else _narrowed(result, x)


def isfinite(x: Array) -> Array:
    return np.isfinite(x)


def isnan(x: Array) -> Array:
    return np.isnan(x)


def logical_not(x: Array) -> Array:
    return np.logical_not(x)


def lgamma(x: Array) -> Array:
    return log_gamma(x) if getattr(x, "dtype", None) == np.float64 else log_gamma(x).astype(_FLOAT32)


def erf(x: Array) -> Array:
    return error_function(x) if getattr(x, "dtype", None) == np.float64 else error_function(x).astype(_FLOAT32)


def add(x1: Array, x2: Array) -> Array:
    result = np.add(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def subtract(x1: Array, x2: Array) -> Array:
    result = np.subtract(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def multiply(x1: Array, x2: Array) -> Array:
    result = np.multiply(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def divide(x1: Array, x2: Array) -> Array:
    result = np.true_divide(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def floor_divide(x1: Array, x2: Array) -> Array:
    result = np.floor_divide(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def remainder(x1: Array, x2: Array) -> Array:
    result = np.remainder(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def pow(x1: Array, x2: Array) -> Array:
    result = np.power(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def minimum(x1: Array, x2: Array) -> Array:
    result = np.minimum(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def maximum(x1: Array, x2: Array) -> Array:
    result = np.maximum(x1, x2)
    return result if result.dtype.char not in _WIDE else _narrowed(result, x1, x2)


def equal(x1: Array, x2: Array) -> Array:
    return np.equal(x1, x2)


def not_equal(x1: Array, x2: Array) -> Array:
    return np.not_equal(x1, x2)


def less(x1: Array, x2: Array) -> Array:
    return np.less(x1, x2)


def less_equal(x1: Array, x2: Array) -> Array:
    return np.less_equal(x1, x2)


def greater(x1: Array, x2: Array) -> Array:
    return np.greater(x1, x2)


def greater_equal(x1: Array, x2: Array) -> Array:
    return np.greater_equal(x1, x2)


def logical_and(x1: Array, x2: Array) -> Array:
    return np.logical_and(x1, x2)


def logical_or(x1: Array, x2: Array) -> Array:
    return np.logical_or(x1, x2)


def bitwise_and(x1: Array, x2: Array) -> Array:
    return np.bitwise_and(x1, x2)


def bitwise_or(x1: Array, x2: Array) -> Array:
    return np.bitwise_or(x1, x2)


def bitwise_xor(x1: Array, x2: Array) -> Array:
    return np.bitwise_xor(x1, x2)


def bitwise_left_shift(x1: Array, x2: Array) -> Array:
    return np.left_shift(x1, x2)


def bitwise_right_shift(x1: Array, x2: Array) -> Array:
    return np.right_shift(x1, x2)


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

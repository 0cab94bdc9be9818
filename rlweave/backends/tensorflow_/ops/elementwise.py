"""Elementwise operators on TensorFlow, and the operators of its arrays."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rlweave.backends.tensorflow_.array import TensorFlowArray, operands, real, tensor_of
from rlweave.backends.tensorflow_.framework import tf

Array = Any


def abs(x: Array) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(x if x.dtype in (tf.bool, tf.uint8) else tf.abs(x))


def negative(x: Array) -> Array:
    return TensorFlowArray(tf.negative(tensor_of(x)))


def exp(x: Array) -> Array:
    return TensorFlowArray(tf.exp(real(x)))


def expm1(x: Array) -> Array:
    return TensorFlowArray(tf.math.expm1(real(x)))


def log(x: Array) -> Array:
    return TensorFlowArray(tf.math.log(real(x)))


def log1p(x: Array) -> Array:
    return TensorFlowArray(tf.math.log1p(real(x)))


def sqrt(x: Array) -> Array:
    return TensorFlowArray(tf.sqrt(real(x)))


def square(x: Array) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.square(x) if x.dtype.is_floating else tf.multiply(x, x))


def sign(x: Array) -> Array:
    return TensorFlowArray(tf.sign(tensor_of(x)))


def sin(x: Array) -> Array:
    return TensorFlowArray(tf.sin(real(x)))


def cos(x: Array) -> Array:
    return TensorFlowArray(tf.cos(real(x)))


def tanh(x: Array) -> Array:
    return TensorFlowArray(tf.tanh(real(x)))


def _of_reals(function: Callable[[Any], Any], x: Array) -> Array:
    """A function that leaves whole numbers as they are."""
    x = tensor_of(x)
    return TensorFlowArray(function(x) if x.dtype.is_floating else x)


def floor(x: Array) -> Array:
    return _of_reals(tf.floor, x)


def ceil(x: Array) -> Array:
    return _of_reals(tf.math.ceil, x)


def round(x: Array) -> Array:
    return _of_reals(tf.round, x)


def isfinite(x: Array) -> Array:
    return TensorFlowArray(tf.math.is_finite(real(x)))


def isnan(x: Array) -> Array:
    return TensorFlowArray(tf.math.is_nan(real(x)))


def logical_not(x: Array) -> Array:
    return TensorFlowArray(tf.logical_not(tensor_of(x, tf.bool)))


def lgamma(x: Array) -> Array:
    return TensorFlowArray(tf.math.lgamma(real(x)))


def erf(x: Array) -> Array:
    return TensorFlowArray(tf.math.erf(real(x)))


def add(x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    return TensorFlowArray(tf.logical_or(first, second) if first.dtype == tf.bool else tf.add(first, second))


def subtract(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.subtract(*operands(x1, x2)))


def multiply(x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    return TensorFlowArray(tf.logical_and(first, second) if first.dtype == tf.bool else tf.multiply(first, second))


def divide(x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    if not first.dtype.is_floating:
        first, second = tf.cast(first, tf.float32), tf.cast(second, tf.float32)
    return TensorFlowArray(tf.truediv(first, second))


def floor_divide(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.math.floordiv(*operands(x1, x2)))


def remainder(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.math.floormod(*operands(x1, x2)))


def pow(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.pow(*operands(x1, x2)))


def _extreme(function: Callable[[Any, Any], Any], above: Callable[[Any, Any], Any], x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    if not first.dtype.is_floating:
        if first.dtype == tf.bool:
            both = function(tf.cast(first, tf.uint8), tf.cast(second, tf.uint8))
            return TensorFlowArray(tf.cast(both, tf.bool))
        return TensorFlowArray(function(first, second))
    # Equal ones share the gradient, as on the other backends; TensorFlow would give all of it to the first.
    tie = 0.5 * first + 0.5 * second
    return TensorFlowArray(tf.where(above(first, second), first, tf.where(above(second, first), second, tie)))


def minimum(x1: Array, x2: Array) -> Array:
    return _extreme(tf.minimum, tf.less, x1, x2)


def maximum(x1: Array, x2: Array) -> Array:
    return _extreme(tf.maximum, tf.greater, x1, x2)


def _ordered(function: Callable[[Any, Any], Any], x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    if first.dtype == tf.bool:
        first, second = tf.cast(first, tf.uint8), tf.cast(second, tf.uint8)
    return TensorFlowArray(function(first, second))


def equal(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.equal(*operands(x1, x2)))


def not_equal(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.not_equal(*operands(x1, x2)))


def less(x1: Array, x2: Array) -> Array:
    return _ordered(tf.less, x1, x2)


def less_equal(x1: Array, x2: Array) -> Array:
    return _ordered(tf.less_equal, x1, x2)


def greater(x1: Array, x2: Array) -> Array:
    return _ordered(tf.greater, x1, x2)


def greater_equal(x1: Array, x2: Array) -> Array:
    return _ordered(tf.greater_equal, x1, x2)


def logical_and(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.logical_and(tensor_of(x1, tf.bool), tensor_of(x2, tf.bool)))


def logical_or(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.logical_or(tensor_of(x1, tf.bool), tensor_of(x2, tf.bool)))


def _of_bits(function: Callable[[Any, Any], Any], logical: Callable[[Any, Any], Any], x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    return TensorFlowArray((logical if first.dtype == tf.bool else function)(first, second))


def bitwise_and(x1: Array, x2: Array) -> Array:
    return _of_bits(tf.bitwise.bitwise_and, tf.logical_and, x1, x2)


def bitwise_or(x1: Array, x2: Array) -> Array:
    return _of_bits(tf.bitwise.bitwise_or, tf.logical_or, x1, x2)


def bitwise_xor(x1: Array, x2: Array) -> Array:
    return _of_bits(tf.bitwise.bitwise_xor, tf.not_equal, x1, x2)


def bitwise_left_shift(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.bitwise.left_shift(*operands(x1, x2)))


def bitwise_right_shift(x1: Array, x2: Array) -> Array:
    return TensorFlowArray(tf.bitwise.right_shift(*operands(x1, x2)))


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    if min is None and max is None:
        return TensorFlowArray(tensor_of(x))
    limited = x
    if min is not None:
        first, second = operands(limited, min)
        limited = TensorFlowArray(tf.maximum(first, second))
    if max is not None:
        first, second = operands(limited, max)
        limited = TensorFlowArray(tf.minimum(first, second))
    result = tensor_of(limited)
    # Where nothing was cut x itself is selected, so that its gradient at a bound is 1 wherever TensorFlow puts it.
    x = tensor_of(x, result.dtype)
    return TensorFlowArray(tf.where(tf.equal(result, x), x, result))


def where(condition: Array, x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    return TensorFlowArray(tf.where(tensor_of(condition, tf.bool), first, second))


def _install_operators() -> None:
    """Gives the array class its operators, each of them a word of the vocabulary."""

    def reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return functools.wraps(function)(lambda self, other: function(other, self))

    both = {
        "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder,
        "pow": pow, "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": bitwise_left_shift,
        "rshift": bitwise_right_shift,
    }  # fmt: skip
    for name, function in both.items():
        setattr(TensorFlowArray, f"__{name}__", function)
        setattr(TensorFlowArray, f"__r{name}__", reflected(function))
    comparisons = {"eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal}
    for name, function in comparisons.items():
        setattr(TensorFlowArray, f"__{name}__", function)
    unary: dict[str, Any] = {"neg": negative, "abs": abs, "pos": lambda x: x, "invert": _inverted}
    for name, one in unary.items():
        setattr(TensorFlowArray, f"__{name}__", one)


def _inverted(x: Array) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x))


_install_operators()

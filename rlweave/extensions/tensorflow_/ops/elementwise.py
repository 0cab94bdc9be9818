"""Elementwise operators on TensorFlow, and the operators of its arrays."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rlweave.extensions.tensorflow_.array import TensorFlowArray, operands, real, tensor_of
from rlweave.extensions.tensorflow_.framework import tf

Array = Any


def of_tensor(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """An operator out of a function of one tensor."""

    def call(x: Array, /) -> Array:
        return TensorFlowArray(function(tensor_of(x)))

    return call


def _of_reals(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function of floats."""

    def call(x: Array, /) -> Array:
        return TensorFlowArray(function(real(x)))

    return call


def _rounding(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function that leaves whole numbers as they are."""

    def call(x: Array, /) -> Array:
        x = tensor_of(x)
        return TensorFlowArray(function(x) if x.dtype.is_floating else x)

    return call


def _binary(function: Callable[[Any, Any], Any], of_truth: Any = None) -> Callable[[Array, Array], Array]:
    """A function of two tensors of one dtype; `of_truth` is another for truth values."""

    def call(x1: Array, x2: Array, /) -> Array:
        first, second = operands(x1, x2)
        chosen = function if of_truth is None or first.dtype != tf.bool else of_truth
        return TensorFlowArray(chosen(first, second))

    return call


def _ordered(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """A comparison by size."""

    def call(x1: Array, x2: Array, /) -> Array:
        first, second = operands(x1, x2)
        if first.dtype == tf.bool:
            first, second = tf.cast(first, tf.uint8), tf.cast(second, tf.uint8)
        return TensorFlowArray(function(first, second))

    return call


def _logical(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """A function of two truth values."""

    def call(x1: Array, x2: Array, /) -> Array:
        return TensorFlowArray(function(tensor_of(x1, tf.bool), tensor_of(x2, tf.bool)))

    return call


def _extreme(function: Callable[[Any, Any], Any], above: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """The smaller or larger of two."""

    def call(x1: Array, x2: Array, /) -> Array:
        first, second = operands(x1, x2)
        if not first.dtype.is_floating:
            if first.dtype == tf.bool:
                both = function(tf.cast(first, tf.uint8), tf.cast(second, tf.uint8))
                return TensorFlowArray(tf.cast(both, tf.bool))
            return TensorFlowArray(function(first, second))
        # Equal ones share the gradient, as on the other backends; TensorFlow would give all of it to the first.
        tie = 0.5 * first + 0.5 * second
        return TensorFlowArray(tf.where(above(first, second), first, tf.where(above(second, first), second, tie)))

    return call


negative = of_tensor(tf.negative)
sign = of_tensor(tf.sign)
exp = _of_reals(tf.exp)
expm1 = _of_reals(tf.math.expm1)
log = _of_reals(tf.math.log)
log1p = _of_reals(tf.math.log1p)
sqrt = _of_reals(tf.sqrt)
sin = _of_reals(tf.sin)
cos = _of_reals(tf.cos)
tanh = _of_reals(tf.tanh)
isfinite = _of_reals(tf.math.is_finite)
isnan = _of_reals(tf.math.is_nan)
lgamma = _of_reals(tf.math.lgamma)
erf = _of_reals(tf.math.erf)
floor = _rounding(tf.floor)
ceil = _rounding(tf.math.ceil)
round = _rounding(tf.round)

add = _binary(tf.add, of_truth=tf.logical_or)
subtract = _binary(tf.subtract)
multiply = _binary(tf.multiply, of_truth=tf.logical_and)
floor_divide = _binary(tf.math.floordiv)
remainder = _binary(tf.math.floormod)
pow = _binary(tf.pow)
minimum = _extreme(tf.minimum, tf.less)
maximum = _extreme(tf.maximum, tf.greater)
equal = _binary(tf.equal)
not_equal = _binary(tf.not_equal)
less = _ordered(tf.less)
less_equal = _ordered(tf.less_equal)
greater = _ordered(tf.greater)
greater_equal = _ordered(tf.greater_equal)
logical_and = _logical(tf.logical_and)
logical_or = _logical(tf.logical_or)
bitwise_and = _binary(tf.bitwise.bitwise_and, of_truth=tf.logical_and)
bitwise_or = _binary(tf.bitwise.bitwise_or, of_truth=tf.logical_or)
bitwise_xor = _binary(tf.bitwise.bitwise_xor, of_truth=tf.not_equal)
bitwise_left_shift = _binary(tf.bitwise.left_shift)
bitwise_right_shift = _binary(tf.bitwise.right_shift)


def abs(x: Array, /) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(x if x.dtype in (tf.bool, tf.uint8) else tf.abs(x))


def square(x: Array, /) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.square(x) if x.dtype.is_floating else tf.multiply(x, x))


def logical_not(x: Array, /) -> Array:
    return TensorFlowArray(tf.logical_not(tensor_of(x, tf.bool)))


def divide(x1: Array, x2: Array, /) -> Array:
    first, second = operands(x1, x2)
    if not first.dtype.is_floating:
        first, second = tf.cast(first, tf.float32), tf.cast(second, tf.float32)
    return TensorFlowArray(tf.truediv(first, second))


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

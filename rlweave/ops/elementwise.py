"""Operators that work on each element, broadcasting their arguments as NumPy does.

Python numbers never widen an array: `float32 + 1.5` is float32 and `int32 + 1` is int32. Integers and booleans that
meet floats become float32; functions that need real numbers (`exp`, `divide`, ...) turn integers into float32.
The result is float64 only where an argument is a float64 array.
"""

from __future__ import annotations

from rlweave.ops.dispatch import Array, implementation


def abs(x: Array, /) -> Array:
    """Absolute value. The gradient at 0 is 0."""
    return implementation(x).abs(x)


def negative(x: Array, /) -> Array:
    """The negative, -x."""
    return implementation(x).negative(x)


def exp(x: Array, /) -> Array:
    """The power e ** x."""
    return implementation(x).exp(x)


def expm1(x: Array, /) -> Array:
    """exp(x) - 1, exact near 0."""
    return implementation(x).expm1(x)


def log(x: Array, /) -> Array:
    """Natural logarithm. The gradient at 0 is infinite: clip first."""
    return implementation(x).log(x)


def log1p(x: Array, /) -> Array:
    """log(1 + x), exact near 0."""
    return implementation(x).log1p(x)


def sqrt(x: Array, /) -> Array:
    """Square root. The gradient at 0 is infinite: add a small number inside, or use `where` on the argument."""
    return implementation(x).sqrt(x)


def square(x: Array, /) -> Array:
    """The square x * x."""
    return implementation(x).square(x)


def sign(x: Array, /) -> Array:
    """-1, 0 or 1, in the dtype of `x`. Its gradient is 0."""
    return implementation(x).sign(x)


def sin(x: Array, /) -> Array:
    """Sine of radians."""
    return implementation(x).sin(x)


def cos(x: Array, /) -> Array:
    """Cosine of radians."""
    return implementation(x).cos(x)


def tanh(x: Array, /) -> Array:
    """Hyperbolic tangent."""
    return implementation(x).tanh(x)


def floor(x: Array, /) -> Array:
    """The largest whole number not above x. Its gradient is 0."""
    return implementation(x).floor(x)


def ceil(x: Array, /) -> Array:
    """The smallest whole number not below x. Its gradient is 0."""
    return implementation(x).ceil(x)


def round(x: Array, /) -> Array:
    """The nearest whole number; halves go to the even neighbour (0.5 -> 0, 1.5 -> 2). Its gradient is 0."""
    return implementation(x).round(x)


def isfinite(x: Array, /) -> Array:
    """True where x is neither infinite nor NaN."""
    return implementation(x).isfinite(x)


def isnan(x: Array, /) -> Array:
    """True where x is NaN."""
    return implementation(x).isnan(x)


def logical_not(x: Array, /) -> Array:
    """True where x is zero or False."""
    return implementation(x).logical_not(x)


def lgamma(x: Array, /) -> Array:
    """Logarithm of the absolute value of the gamma function."""
    return implementation(x).lgamma(x)


def erf(x: Array, /) -> Array:
    """The error function."""
    return implementation(x).erf(x)


def add(x1: Array, x2: Array, /) -> Array:
    """x1 + x2."""
    return implementation(x1, x2).add(x1, x2)


def subtract(x1: Array, x2: Array, /) -> Array:
    """x1 - x2. Booleans must be converted first."""
    return implementation(x1, x2).subtract(x1, x2)


def multiply(x1: Array, x2: Array, /) -> Array:
    """x1 * x2."""
    return implementation(x1, x2).multiply(x1, x2)


def divide(x1: Array, x2: Array, /) -> Array:
    """x1 / x2; the quotient of two integer arrays is float32."""
    return implementation(x1, x2).divide(x1, x2)


def floor_divide(x1: Array, x2: Array, /) -> Array:
    """The quotient rounded down, in the common dtype. Its gradient is 0."""
    return implementation(x1, x2).floor_divide(x1, x2)


def remainder(x1: Array, x2: Array, /) -> Array:
    """x1 - x2 * floor(x1 / x2): the result has the sign of x2, as Python's `%`."""
    return implementation(x1, x2).remainder(x1, x2)


def pow(x1: Array, x2: Array, /) -> Array:
    """x1 to the power x2."""
    return implementation(x1, x2).pow(x1, x2)


def minimum(x1: Array, x2: Array, /) -> Array:
    """The smaller of the two; NaN if either is. At a tie each side gets half the gradient."""
    return implementation(x1, x2).minimum(x1, x2)


def maximum(x1: Array, x2: Array, /) -> Array:
    """The larger of the two; NaN if either is. At a tie each side gets half the gradient."""
    return implementation(x1, x2).maximum(x1, x2)


def equal(x1: Array, x2: Array, /) -> Array:
    """x1 == x2, as bool."""
    return implementation(x1, x2).equal(x1, x2)


def not_equal(x1: Array, x2: Array, /) -> Array:
    """x1 != x2, as bool."""
    return implementation(x1, x2).not_equal(x1, x2)


def less(x1: Array, x2: Array, /) -> Array:
    """x1 < x2, as bool."""
    return implementation(x1, x2).less(x1, x2)


def less_equal(x1: Array, x2: Array, /) -> Array:
    """x1 <= x2, as bool."""
    return implementation(x1, x2).less_equal(x1, x2)


def greater(x1: Array, x2: Array, /) -> Array:
    """x1 > x2, as bool."""
    return implementation(x1, x2).greater(x1, x2)


def greater_equal(x1: Array, x2: Array, /) -> Array:
    """x1 >= x2, as bool."""
    return implementation(x1, x2).greater_equal(x1, x2)


def logical_and(x1: Array, x2: Array, /) -> Array:
    """True where both are non-zero."""
    return implementation(x1, x2).logical_and(x1, x2)


def logical_or(x1: Array, x2: Array, /) -> Array:
    """True where at least one is non-zero."""
    return implementation(x1, x2).logical_or(x1, x2)


def bitwise_and(x1: Array, x2: Array, /) -> Array:
    """Bits set in both integers (or both bools)."""
    return implementation(x1, x2).bitwise_and(x1, x2)


def bitwise_or(x1: Array, x2: Array, /) -> Array:
    """Bits set in at least one of the integers (or bools)."""
    return implementation(x1, x2).bitwise_or(x1, x2)


def bitwise_xor(x1: Array, x2: Array, /) -> Array:
    """Bits set in exactly one of the integers (or bools)."""
    return implementation(x1, x2).bitwise_xor(x1, x2)


def bitwise_left_shift(x1: Array, x2: Array, /) -> Array:
    """x1 moved x2 bits up; bits that leave the dtype are lost."""
    return implementation(x1, x2).bitwise_left_shift(x1, x2)


def bitwise_right_shift(x1: Array, x2: Array, /) -> Array:
    """x1 moved x2 bits down; arithmetic, so signed integers keep their sign bit."""
    return implementation(x1, x2).bitwise_right_shift(x1, x2)


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    """Limits x to [min, max]; a bound that is None does not exist.

    The gradient is 1 inside and exactly at a bound, and 0 outside (there it goes to the bound, if that is an array).
    """
    return implementation(x, min, max).clip(x, min, max)


def where(condition: Array, x1: Array, x2: Array) -> Array:
    """x1 where the condition is true, x2 elsewhere.

    Gradients flow into both branches, multiplied by 0 on the side not taken. 0 * inf is NaN, so an argument at which
    the branch not taken has an infinite gradient must be made harmless before:
    `where(x > 0, log(where(x > 0, x, 1)), 0)`.
    """
    return implementation(condition, x1, x2).where(condition, x1, x2)

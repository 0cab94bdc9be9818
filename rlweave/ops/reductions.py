"""Operators that reduce axes.

`axis` is one axis, a tuple of axes, or None for all; negative axes count from the end. `keepdims` keeps reduced axes
with size 1. Floats keep their dtype.
"""

from __future__ import annotations

from rlweave.ops.dispatch import Array, implementation

Axis = int | tuple[int, ...] | None


def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum. Sums of bools and integers are int32."""
    return implementation(x).sum(x, axis, keepdims)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The arithmetic mean. Means of bools and integers are float32."""
    return implementation(x).mean(x, axis, keepdims)


def prod(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The product. Products of bools and integers are int32."""
    return implementation(x).prod(x, axis, keepdims)


def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element. Tied elements share the gradient equally."""
    return implementation(x).max(x, axis, keepdims)


def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element. Tied elements share the gradient equally."""
    return implementation(x).min(x, axis, keepdims)


def any(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether at least one element is non-zero, as bool."""
    return implementation(x).any(x, axis, keepdims)


def all(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether every element is non-zero, as bool."""
    return implementation(x).all(x, axis, keepdims)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Standard deviation of the population (divides by the count). Its gradient is 0 where it is 0."""
    return implementation(x).std(x, axis, keepdims)


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Variance of the population (divides by the count)."""
    return implementation(x).var(x, axis, keepdims)


def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) without overflow; -inf where all elements are."""
    return implementation(x).logsumexp(x, axis, keepdims)


def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index (int32) of the first largest element along one axis, or in the flattened array."""
    return implementation(x).argmax(x, axis, keepdims)


def argmin(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index (int32) of the first smallest element along one axis, or in the flattened array."""
    return implementation(x).argmin(x, axis, keepdims)


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    """Running sum along an axis, which may be left out only for one-dimensional x; integers give int32.

    Raises:
        ValueError: `axis` is None and x has more than one axis.
    """
    return implementation(x).cumulative_sum(x, axis)


def discounted_sums(x: Array, decays: Array) -> Array:
    """`y_t = x_t + decays_t * y_{t+1}`, with nothing after the last row.

    Args:
        x: (T, ...), floats.
        decays: Factor on what follows row t, of the shape and dtype of x.

    Returns:
        (T, ...).

    Raises:
        ValueError: The shapes differ.
    """
    return implementation(x, decays).discounted_sums(x, decays)

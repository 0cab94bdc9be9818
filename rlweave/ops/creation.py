"""Operators that make arrays. Dtypes are strings; shapes are tuples of ints (a single int is one axis)."""

from __future__ import annotations

from collections.abc import Sequence

from rlweave.ops.dispatch import Array, implementation

Shape = int | Sequence[int]


def asarray(x: Array, dtype: str | None = None) -> Array:
    """Turns numbers, nested lists or an array of NumPy or of the backend into an array of the backend.

    Args:
        x: Arrays keep their dtype unless `dtype` says otherwise (on JAX 64-bit ones become 32-bit). Python floats
            become float32, ints int32, bools bool.
        dtype: The wanted dtype.
    """
    return implementation(x).asarray(x, dtype)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    """An array of zeros."""
    return implementation(shape).zeros(shape, dtype)


def ones(shape: Shape, dtype: str = "float32") -> Array:
    """An array of ones."""
    return implementation(shape).ones(shape, dtype)


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    """An array filled with one value (a number or an array without axes)."""
    return implementation(shape, fill_value).full(shape, fill_value, dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    """Evenly spaced numbers of the half-open interval [start, stop); with one argument [0, start)."""
    return implementation().arange(start, stop, step, dtype)


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    """`num` evenly spaced numbers, both ends included."""
    return implementation().linspace(start, stop, num, dtype)


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    """Ones on the main diagonal, zeros elsewhere; square unless `n_cols` is given."""
    return implementation().eye(n_rows, n_cols, dtype)


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    """Zeros of the shape (and dtype, unless given) of `x`."""
    return implementation(x).zeros_like(x, dtype)


def ones_like(x: Array, dtype: str | None = None) -> Array:
    """Ones of the shape (and dtype, unless given) of `x`."""
    return implementation(x).ones_like(x, dtype)


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    """`fill_value` in the shape (and dtype, unless given) of `x`."""
    return implementation(x, fill_value).full_like(x, fill_value, dtype)


def astype(x: Array, dtype: str) -> Array:
    """Converts to a dtype: floats are cut towards zero on the way to ints, everything but zero becomes True."""
    return implementation(x).astype(x, dtype)

"""Operators that make, reshape, join, order and index arrays.

Dtypes are strings; shapes are tuples of ints (a single int is one axis). Indices are integers in [0, size); for
others the result is undefined: backends raise, clamp or wrap.
"""

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


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    """The same elements in row-major order in another shape; one size may be -1."""
    return implementation(x).reshape(x, shape)


def expand_dims(x: Array, axis: int) -> Array:
    """Inserts an axis of size 1 at position `axis` of the result."""
    return implementation(x).expand_dims(x, axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    """Removes axes of size 1.

    Raises:
        ValueError: One of the axes has another size.
    """
    return implementation(x).squeeze(x, axis)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    """Reorders axes: axis i of the result is axis `axes[i]` of x."""
    return implementation(x).permute_dims(x, axes)


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Joins arrays along an existing axis."""
    return implementation(arrays).concat(arrays, axis)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Joins arrays of one shape along a new axis."""
    return implementation(arrays).stack(arrays, axis)


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    """Cuts an array into a tuple of arrays along an axis, which disappears. The inverse of `stack`."""
    return implementation(x).unstack(x, axis)


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    """Repeats axes of size 1 (and adds leading axes) to reach a shape. The result must not be written to."""
    return implementation(x).broadcast_to(x, shape)


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Reverses the order along axes (all of them by default)."""
    return implementation(x).flip(x, axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    """Moves elements `shift` places up along an axis; those that leave come back at the other end."""
    return implementation(x).roll(x, shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    """Repeats every element along an axis: [a, b] -> [a, a, b, b]."""
    return implementation(x).repeat(x, repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    """Repeats the whole array, per axis: [a, b] -> [a, b, a, b]."""
    return implementation(x).tile(x, repetitions)


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Sorts along an axis."""
    return implementation(x).sort(x, axis, descending)


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Indices (int32) that sort along an axis; always stable, so equal elements keep their order both ways."""
    return implementation(x).argsort(x, axis, descending)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    """Where to insert each element of x2 into the sorted one-dimensional x1 to keep the order.

    Args:
        x1: Sorted values, (N,).
        x2: Values of any shape.
        side: `"left"` gives the first place that fits, `"right"` the last.

    Returns:
        int32 in 0..N, of the shape of x2.
    """
    return implementation(x1, x2).searchsorted(x1, x2, side)


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    """Merges the first `ranks` axes into one: (T, B, ...) -> (T * B, ...). With 0 ranks adds an axis of size 1."""
    return implementation(x).fold_ranks(x, ranks)


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    """Splits the first axis into axes of the given sizes: the inverse of `fold_ranks`."""
    return implementation(x).unfold_ranks(x, leading)


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """Picks slices along an axis; the axis is replaced by the shape of `indices`."""
    return implementation(x, indices).take(x, indices, axis)


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    """Picks single elements: result[i, j] = x[i, indices[i, j]] for the last of two axes.

    Args:
        x: Values.
        indices: As many axes as x; the other axes must be equal or broadcast.
        axis: The axis that is indexed.
    """
    return implementation(x, indices).take_along_axis(x, indices, axis)


def take_last(x: Array, indices: Array) -> Array:
    """Picks one element per row of the last axis: the Q-value of an action, the log-probability of a class.

    Args:
        x: Values, (..., N).
        indices: Integers, (...).

    Returns:
        x[..., indices[...]], of shape (...).
    """
    return implementation(x, indices).take_last(x, indices)


def set_at(x: Array, indices: Array, values: Array) -> Array:
    """A copy of x in which the rows at `indices` are replaced. Where an index occurs twice the last one wins.

    Args:
        x: (N, ...).
        indices: Integers of any shape (K...).
        values: Broadcasts to (K..., ...); converted to the dtype of x.
    """
    return implementation(x, indices, values).set_at(x, indices, values)


def add_at(x: Array, indices: Array, values: Array) -> Array:
    """A copy of x to whose rows at `indices` values are added. Where an index occurs twice both are added.

    Args:
        x: (N, ...).
        indices: Integers of any shape (K...).
        values: Broadcasts to (K..., ...); converted to the dtype of x.
    """
    return implementation(x, indices, values).add_at(x, indices, values)

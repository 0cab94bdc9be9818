"""Operators that move, join, repeat or order elements."""

from __future__ import annotations

from collections.abc import Sequence

from rlweave.ops.dispatch import Array, implementation


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

"""Operators that read and write by integer index.

Indices are integers in [0, size). What happens to others is undefined: backends raise, clamp or wrap.
"""

from __future__ import annotations

from rlweave.ops.dispatch import Array, implementation


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

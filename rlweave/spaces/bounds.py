"""Bounds of boxes: read, checked against a shape, kept as small as possible, and shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.errors import SpaceError
from rlweave.spaces.box import Axis, axes_text, axes_tuple
from rlweave.spaces.dim import Dim


def whole_numbers(name: str, value: Any) -> np.ndarray:
    """Reads a bound as Python ints, so that no bound of any dtype overflows."""
    numbers = np.asarray(value) if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    whole = numbers.dtype.kind in "iu" or (
        numbers.dtype == object
        and all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers.flat)
    )
    if not whole:
        raise SpaceError(
            f"The {name} of an IntBox is not a whole number.",
            received=f"{name}={value!r}",
            fix="whole numbers; FloatBox for real ones, BoolBox for booleans",
        )
    return np.asarray(numbers.astype(object))


def fit_bounds(
    shape: Axis | Sequence[Axis] | None, low: np.ndarray, high: np.ndarray, unbounded: tuple[float, float]
) -> tuple[tuple[Axis, ...], np.ndarray, np.ndarray]:
    """Finds the shape if it is not given, checks the bounds against it, and makes them as small as possible.

    Args:
        shape: The feature shape, or None for that of the bounds.
        low: The lower bounds, of any shape that broadcasts to the feature shape.
        high: The upper bounds, likewise.
        unbounded: The bounds of a box without elements: there is nothing to bound, so all such boxes are equal.

    Returns:
        The feature shape, and both bounds, each 0-d or of the feature shape.

    Raises:
        SpaceError: When the bounds do not fit the shape.
    """
    axes = None if shape is None else axes_tuple(shape)
    try:
        if axes is None:
            axes = np.broadcast_shapes(low.shape, high.shape)
        if low.ndim or high.ndim:
            # -1 fits no array: bounds per dimension need to know how many dimensions there are.
            numbers = tuple(-1 if isinstance(axis, Dim) else axis for axis in axes)
            low, high = (bound if bound.ndim == 0 else np.broadcast_to(bound, numbers) for bound in (low, high))
    except ValueError:
        raise SpaceError(
            "The bounds of a box do not fit its shape.",
            received=f"low of shape {low.shape}, high of shape {high.shape}, "
            f"shape={'left out' if axes is None else axes_text(axes)}",
            fix="a number, or one bound per dimension; symbolic axes allow a number only",
        ) from None
    if 0 in axes:
        return axes, np.asarray(unbounded[0], low.dtype), np.asarray(unbounded[1], high.dtype)
    return axes, smallest(low), smallest(high)


def smallest(bound: np.ndarray) -> np.ndarray:
    """Turns an array of equal numbers into a 0-d one; others are copied, so that they cannot be changed."""
    if bound.ndim and bound.size and (bound == bound.flat[0]).all():
        return np.asarray(bound.flat[0], bound.dtype)
    return bound.copy()


def broadcast_bound(bound: np.ndarray, shape: tuple[Axis, ...]) -> np.ndarray:
    """Broadcasts to the feature shape; with a symbolic axis in it, a bound is 0-d and stays so."""
    numbers = tuple(axis for axis in shape if not isinstance(axis, Dim))
    return np.broadcast_to(bound, numbers if len(numbers) == len(shape) else ())


def bound_key(bound: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    """Returns what makes two bounds of one dtype equal."""
    return bound.shape, bound.tobytes()


def json_floats(bound: np.ndarray) -> Any:
    """Returns nested lists of numbers, with the infinities, which strict JSON lacks, as text.

    >>> json_floats(np.array([0.5, np.inf]))
    [0.5, 'inf']
    """

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")

    return convert(bound.tolist())


def floats_from_json(bound: Any) -> Any:
    """The inverse of `json_floats`; None stays.

    >>> floats_from_json([0.5, "-inf"])
    [0.5, -inf]
    """
    if isinstance(bound, list):
        return [floats_from_json(item) for item in bound]
    return bound if bound is None else float(bound)


def number_text(value: Any) -> str:
    """Formats one bound shortly.

    >>> number_text(0.1), number_text(1e30), number_text(256)
    ('0.1', '1e+30', '256')
    """
    return str(value) if isinstance(value, int | np.integer) else f"{float(value):g}"


def range_text(bound: np.ndarray) -> str:
    """Formats the bounds of all dimensions: one number, or the smallest and the largest.

    >>> range_text(np.array([3, 4])), range_text(np.array([3, 3]))
    ('3..4', '3')
    """
    lowest, highest = number_text(bound.min()), number_text(bound.max())
    return lowest if lowest == highest else f"{lowest}..{highest}"


def first_outside(array: np.ndarray, inside: np.ndarray, low: np.ndarray, high: np.ndarray, bracket: str) -> str:
    """Says which is the first value of an array outside its bounds, and what they are.

    Args:
        array: The values, leading ranks included.
        inside: Which of them lie inside.
        low: The lower bounds, 0-d or of the feature shape.
        high: The upper bounds to show, likewise.
        bracket: ``"]"`` when the upper bounds are included, else ``")"``.
    """
    index = tuple(int(i) for i in np.argwhere(~inside)[0])
    value = array[index]
    where = f" at index {index}" if index else ""
    if value != value:
        return f"holds nan{where}"
    at_low, at_high = (bound[index[len(index) - np.ndim(bound) :]] for bound in (np.asarray(low), np.asarray(high)))
    return f"holds {value}{where}, outside [{number_text(at_low)}, {number_text(at_high)}{bracket}"

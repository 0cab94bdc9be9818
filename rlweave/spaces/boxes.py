"""The numeric leaves: `FloatBox`, `IntBox`, `BoolBox`, and leaves from a tuple of axes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlweave.errors import SpaceError
from rlweave.spaces.bounds import (
    bound_key,
    broadcast_bound,
    first_outside,
    fit_bounds,
    floats_from_json,
    json_floats,
    range_text,
    whole_numbers,
)
from rlweave.spaces.box import Axis, Box
from rlweave.spaces.dim import Dim
from rlweave.spaces.space import Rank, Space

_NO_BOUNDS = {
    dtype: (np.asarray(-math.inf, dtype), np.asarray(math.inf, dtype)) for dtype in ("float16", "float32", "float64")
}
_LIMITS = {
    dtype: (np.asarray(np.iinfo(dtype).min, dtype), np.asarray(np.iinfo(dtype).max, dtype))
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
}
_UNBOUNDED_SCALE = 10.0  # integers without bounds are sampled this wide: far from overflow in any arithmetic


class FloatBox(Box):
    """Arrays of floating-point numbers, each dimension bounded on both, one or no side.

    Args:
        low: The lowest value, a number or one per dimension (``-inf``: unbounded); None is unbounded.
        high: The highest value (included), likewise.
        shape: The feature shape; if left out, that of the bounds.
        dtype: ``"float32"``, ``"float64"`` or ``"float16"``. Bounds are rounded to it.
        add_batch_rank: Whether there is a batch rank; a number fixes its size.
        add_time_rank: Whether there is a time rank; a number fixes its size.
        layout: For images ``"channels_last"`` or ``"channels_first"``.

    Raises:
        SpaceError: When bounds are not a number, cross, or do not fit the shape.

    >>> FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True)
    FloatBox((T, B, 4) float32)
    >>> FloatBox(0, [1, np.inf])
    FloatBox((2,) float32 in [0, 1..inf])
    """

    DTYPES = tuple(_NO_BOUNDS)
    JSON_FIELDS = frozenset({"shape", "dtype", "batch", "time", "layout", "low", "high"})

    _low: np.ndarray  # as small as possible: 0-d when all dimensions are alike
    _high: np.ndarray

    def __init__(
        self,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        shape: Axis | Sequence[Axis] | None = None,
        dtype: str = "float32",
        add_batch_rank: Rank = False,
        add_time_rank: Rank = False,
        layout: str | None = None,
    ) -> None:
        dtype = self._dtype_name(dtype)
        if low is None and high is None:  # most boxes of a graph: worth a short way
            lowest, highest = _NO_BOUNDS[dtype]
            self._set_up(
                () if shape is None else shape, dtype, add_batch_rank, add_time_rank, layout, _low=lowest, _high=highest
            )
            return
        lowest = self._bound("low", -math.inf if low is None else low, dtype)
        highest = self._bound("high", math.inf if high is None else high, dtype)
        shape, lowest, highest = fit_bounds(shape, lowest, highest, (-math.inf, math.inf))
        if np.any(lowest > highest):
            raise SpaceError(
                "A FloatBox has a low above its high.", received=f"low={low!r}, high={high!r}", fix="swap the two"
            )
        if np.any(lowest == np.inf) or np.any(highest == -np.inf):
            raise SpaceError(
                "A FloatBox has a bound that no finite number keeps.",
                received=f"low={low!r}, high={high!r}",
                fix="low=-inf and high=inf, or None, mean unbounded",
            )
        self._set_up(shape, dtype, add_batch_rank, add_time_rank, layout, _low=lowest, _high=highest)

    @staticmethod
    def _bound(name: str, value: ArrayLike, dtype: str) -> np.ndarray:
        try:
            with np.errstate(over="ignore"):  # a float64 bound beyond float32 is no bound in float32
                bound = np.asarray(value, dtype=np.float64).astype(dtype)
        except (TypeError, ValueError):
            bound = np.asarray(np.nan)
        if np.isnan(bound).any():
            raise SpaceError(
                f"The {name} of a FloatBox is not a number.",
                received=f"{name}={value!r}",
                fix="numbers; inf or None for unbounded dimensions",
            )
        return bound + np.zeros((), dtype)  # -0.0 becomes 0.0, so that equal bounds have equal bytes

    @property
    def low(self) -> np.ndarray:
        """The lowest values, of this dtype, read-only, broadcast to the shape; ``-inf`` where unbounded."""
        return broadcast_bound(self._low, self.shape)

    @property
    def high(self) -> np.ndarray:
        """The highest values (included), of this dtype, read-only, broadcast to the shape; ``inf`` where unbounded."""
        return broadcast_bound(self._high, self.shape)

    @property
    def bounded(self) -> np.ndarray:
        """Which dimensions are bounded on both sides: booleans, read-only, broadcast to the shape.

        >>> FloatBox([0, -np.inf], 1).bounded
        array([ True, False])
        """
        return broadcast_bound(np.isfinite(self._low) & np.isfinite(self._high), self.shape)

    def _sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        low, high = self._low.astype(np.float64), self._high.astype(np.float64)
        below, above = np.isfinite(low), np.isfinite(high)
        first, last = np.where(below, low, 0.0), np.where(above, high, 0.0)
        if not (below.any() or above.any()):
            return np.asarray(rng.standard_normal(shape)).astype(self.dtype)
        values = np.zeros(shape)
        if np.any(below & above):
            fraction = rng.random(shape)
            values = np.where(below & above, first * (1.0 - fraction) + last * fraction, values)
        if np.any(below ^ above):
            distance = rng.exponential(size=shape)
            values = np.where(below & ~above, first + distance, values)
            values = np.where(above & ~below, last - distance, values)
        if not np.all(below | above):
            values = np.where(below | above, values, rng.normal(size=shape))
        largest = float(np.finfo(self.dtype).max)
        # Rounding to the dtype may step over a bound.
        return np.asarray(np.clip(np.clip(values, -largest, largest).astype(self.dtype), self._low, self._high))

    def _why_not_values(self, array: np.ndarray) -> str | None:
        inside = (array >= self._low) & (array <= self._high)  # false for NaN
        if inside.all():
            return None
        return first_outside(array, np.asarray(inside), self._low, self._high, "]")

    def _identity(self) -> Hashable:
        return super()._identity(), bound_key(self._low), bound_key(self._high)

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data; infinite bounds are ``"inf"`` and ``"-inf"``."""
        return super().to_json() | {"low": json_floats(self._low), "high": json_floats(self._high)}

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        shape, batch, time = cls._axes_from_json(form)
        low, high = floats_from_json(form.get("low")), floats_from_json(form.get("high"))
        given = shape if "shape" in form else None
        return cls(low, high, given, form.get("dtype", "float32"), batch, time, form.get("layout"))

    def _details(self) -> str:
        if np.all(self._low == -np.inf) and np.all(self._high == np.inf):
            return ""
        return f" in [{range_text(self._low)}, {range_text(self._high)}]"


class IntBox(Box):
    """Arrays of integers, each dimension with its own lowest value and (excluded) high.

    ``IntBox(5)`` is {0..4}, ``IntBox(2, 5)`` is {2, 3, 4}, ``IntBox(high=[3, 4])`` has a range per dimension
    (Gymnasium's MultiDiscrete), ``IntBox()`` is every integer of the dtype.

    Args:
        low: The lowest value, a number or one per dimension. With ``high`` left out, this *is* the high, and low is 0.
        high: The lowest value that is too high, likewise.
        shape: The feature shape; if left out, that of the bounds.
        dtype: ``"int32"``, ``"uint8"``, ``"int64"``, ...
        add_batch_rank: Whether there is a batch rank; a number fixes its size.
        add_time_rank: Whether there is a time rank; a number fixes its size.
        layout: For images ``"channels_last"`` or ``"channels_first"``.

    Raises:
        SpaceError: When a bound is no integer, a dimension holds no value, or a bound exceeds the dtype.

    >>> IntBox(5, add_batch_rank=True)
    IntBox((B,) int32 in [0, 5))
    >>> IntBox(0, 256, shape=(84, 84, 3), dtype="uint8", layout="channels_last")
    IntBox((84, 84, 3) uint8 in [0, 256) channels_last)
    """

    DTYPES = tuple(_LIMITS)
    JSON_FIELDS = frozenset({"shape", "dtype", "batch", "time", "layout", "low", "high"})

    _low: np.ndarray  # of this dtype, as small as possible: 0-d when all dimensions are alike
    _last: np.ndarray  # the highest value that is included: other than the high, it always fits the dtype

    def __init__(
        self,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        shape: Axis | Sequence[Axis] | None = None,
        dtype: str = "int32",
        add_batch_rank: Rank = False,
        add_time_rank: Rank = False,
        layout: str | None = None,
    ) -> None:
        dtype = self._dtype_name(dtype)
        if low is None and high is None:  # most boxes of a graph: worth a short way
            lowest, highest = _LIMITS[dtype]
            self._set_up(
                () if shape is None else shape, dtype, add_batch_rank, add_time_rank, layout, _low=lowest, _last=highest
            )
            return
        limits = np.iinfo(dtype)
        first = whole_numbers("low", 0 if low is None or high is None else low)
        last = np.asarray(whole_numbers("high", low if high is None else high) - 1, dtype=object)
        shape, first, last = fit_bounds(shape, first, last, (limits.min, limits.max))
        if np.any(first > last):
            raise SpaceError(
                "An IntBox holds no value in some dimension (its high is excluded).",
                received=f"low={low!r}, high={high!r}",
                fix="a high above the low: IntBox(5) is {0..4}, IntBox(2, 5) is {2, 3, 4}",
            )
        if np.any(first < limits.min) or np.any(last > limits.max):
            raise SpaceError(
                f"The bounds of an IntBox do not fit its dtype {dtype}.",
                received=f"low={low!r}, high={high!r}",
                fix=f"bounds within [{limits.min}, {limits.max + 1}), or a wider dtype",
            )
        self._set_up(
            shape, dtype, add_batch_rank, add_time_rank, layout, _low=first.astype(dtype), _last=last.astype(dtype)
        )

    @property
    def low(self) -> np.ndarray:
        """The lowest values, int64, read-only, broadcast to the shape."""
        return broadcast_bound(self._low.astype(np.int64), self.shape)

    @property
    def high(self) -> np.ndarray:
        """The highs (excluded), int64, read-only, broadcast to the shape.

        Where an int64 box has no bound above, this is the largest int64, which it yet contains.
        """
        last = self._last.astype(np.int64)
        return broadcast_bound(last + (last < np.iinfo(np.int64).max), self.shape)

    @property
    def _is_unbounded(self) -> bool:
        limits = np.iinfo(self.dtype)
        return bool(np.all(self._low == limits.min) and np.all(self._last == limits.max))

    @property
    def last(self) -> np.ndarray:
        """The highest values that are included, int64, read-only, broadcast to the shape."""
        return broadcast_bound(self._last.astype(np.int64), self.shape)

    @property
    def bounded(self) -> np.ndarray:
        """Which dimensions are bounded on both sides: booleans, read-only, broadcast to the shape.

        A bound at the end of a 32 or 64 bit dtype is none.
        """
        limits = np.iinfo(self.dtype)
        if limits.bits < 32:
            return broadcast_bound(np.asarray(True), self.shape)
        below = (self._low > limits.min) | (limits.min == 0)
        return broadcast_bound(np.asarray(below & (self._last < limits.max)), self.shape)

    @property
    def num_categories(self) -> int | np.ndarray | None:
        """The number of categories when values are indices ``{0..n-1}``, else None.

        An int when all dimensions have equally many, else an int64 array of the feature shape. None when some low is
        not 0, or a dimension has no upper bound: then the values do not number categories.

        >>> IntBox(5).num_categories, IntBox(high=[3, 4]).num_categories, IntBox(2, 5).num_categories
        (5, array([3, 4]), None)
        """
        if 0 in self.shape:
            return np.zeros(self.feature_shape, np.int64)
        if np.any(self._low != 0) or not np.all(self.bounded):
            return None
        return int(self._last) + 1 if self._last.ndim == 0 else self._last.astype(np.int64) + 1

    def _sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        limits = np.iinfo(self.dtype)
        if np.all(self.bounded):
            return np.asarray(rng.integers(self._low, self._last, size=shape, dtype=self.dtype, endpoint=True))
        below, above = (self._low > limits.min) | (limits.min == 0), self._last < limits.max
        wide = object if self.dtype == "int64" else np.int64  # Python's integers do not overflow
        low, last = self._low.astype(wide), self._last.astype(wide)
        spread = np.abs(rng.normal(scale=_UNBOUNDED_SCALE, size=shape)).astype(np.int64).astype(wide)
        sign = np.where(rng.random(shape) < 0.5, -1, 1)
        uniform = rng.integers(self._low, self._last, size=shape, dtype=self.dtype, endpoint=True).astype(wide)
        one_sided = np.where(below, low + spread, np.where(above, last - spread, sign * spread))
        values = np.where(below & above, uniform, one_sided)
        return np.asarray(np.minimum(np.maximum(values, low), last)).astype(self.dtype)

    def _why_not_values(self, array: np.ndarray) -> str | None:
        if self._is_unbounded:
            return None
        inside = (array >= self._low) & (array <= self._last)
        if inside.all():
            return None
        return first_outside(array, np.asarray(inside), self._low, self._last.astype(object) + 1, ")")

    def _identity(self) -> Hashable:
        return super()._identity(), bound_key(self._low), bound_key(self._last)

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data; ``high`` is excluded."""
        high = np.asarray(self._last.astype(object) + 1, object)
        return super().to_json() | {"low": self._low.tolist(), "high": high.tolist()}

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        shape, batch, time = cls._axes_from_json(form)
        given = shape if "shape" in form else None
        dtype, layout = form.get("dtype", "int32"), form.get("layout")
        return cls(form.get("low"), form.get("high"), given, dtype, batch, time, layout)

    def _details(self) -> str:
        if self._is_unbounded and np.iinfo(self.dtype).bits >= 32:
            return ""
        return f" in [{range_text(self._low)}, {range_text(np.asarray(self._last.astype(object) + 1, object))})"


class BoolBox(Box):
    """Arrays of booleans (Gymnasium's MultiBinary).

    Args:
        shape: The feature shape.
        add_batch_rank: Whether there is a batch rank; a number fixes its size.
        add_time_rank: Whether there is a time rank; a number fixes its size.
        layout: For images ``"channels_last"`` or ``"channels_first"``.

    >>> BoolBox(shape=(3,), add_time_rank=True)
    BoolBox((T, 3) bool)
    """

    DTYPES = ("bool",)
    JSON_FIELDS = frozenset({"shape", "dtype", "batch", "time", "layout"})

    def __init__(
        self,
        shape: Axis | Sequence[Axis] = (),
        add_batch_rank: Rank = False,
        add_time_rank: Rank = False,
        layout: str | None = None,
    ) -> None:
        self._set_up(shape, "bool", add_batch_rank, add_time_rank, layout)

    def _sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return np.asarray(rng.random(shape) < 0.5)

    def _why_not_values(self, array: np.ndarray) -> str | None:
        return None

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        axes = cls._axes_from_json(form)
        cls._dtype_name(form.get("dtype", "bool"))
        return cls(*axes, form.get("layout"))


def from_axes(axes: Sequence[Axis], dtype: str) -> Box:
    """Makes an unbounded leaf from all axes of an array.

    A leading Dim of time alone becomes the time rank; then a leading Dim with the batch in it (``T*B`` too) becomes
    the batch rank; everything else is feature shape.

    Args:
        axes: All axes, in order; numbers and Dims.
        dtype: ``"float32"``, ``"int32"``, ``"bool"``, ...

    Raises:
        SpaceError: When no leaf has this dtype.

    >>> from rlweave.spaces import BATCH, TIME
    >>> from_axes((TIME, BATCH, 4), "float32")
    FloatBox((T, B, 4) float32)
    """
    rest = list(axes)
    time = rest.pop(0) if rest and isinstance(rest[0], Dim) and rest[0].is_time else False
    batch = rest.pop(0) if rest and isinstance(rest[0], Dim) and rest[0].is_batch else False
    if dtype in FloatBox.DTYPES:
        return FloatBox(shape=rest, dtype=dtype, add_batch_rank=batch, add_time_rank=time)
    if dtype in IntBox.DTYPES:
        return IntBox(shape=rest, dtype=dtype, add_batch_rank=batch, add_time_rank=time)
    if dtype in BoolBox.DTYPES:
        return BoolBox(shape=rest, add_batch_rank=batch, add_time_rank=time)
    raise SpaceError(
        "No space holds arrays of this dtype.",
        received=f"dtype={dtype!r}",
        fix="one of " + ", ".join(FloatBox.DTYPES + IntBox.DTYPES + BoolBox.DTYPES),
    )

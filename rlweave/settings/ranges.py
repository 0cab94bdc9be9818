"""Ranges of numeric settings: one check for constructors and configurations, which NaN never passes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlweave.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting takes. Infinity is a number, NaN is none.

    Args:
        low: Lowest number.
        high: Highest number.
        open_low: The lowest itself is left out.
        open_high: The highest itself is left out.

    >>> 0.0 in POSITIVE, 0.0 in FRACTION, math.nan in ANY_NUMBER
    (False, True, False)
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: Any) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return bool(above and (value < self.high if self.open_high else value <= self.high))

    def __str__(self) -> str:
        parts = []
        if self.low > -math.inf:
            parts.append(f"{'above' if self.open_low else 'at least'} {self.low:g}")
        if self.high < math.inf:
            parts.append(f"{'below' if self.open_high else 'at most'} {self.high:g}")
        if self.high == math.inf and self.open_high:
            parts.append("finite")
        return " and ".join(parts) or "a number"

    def check(self, name: str, value: Any, where: str = "", optional: bool = False) -> None:
        """Refuses a value that is out of the range.

        Args:
            name: Of the setting.
            value: A number, or None if `optional`.
            where: Component that has the setting.
            optional: None is allowed, too.

        Raises:
            ConfigError: It is no number of the range.
        """
        if (value is None and optional) or (is_number(value) and value in self):
            return
        alternative = ", or None" if optional else ""
        raise ConfigError(
            f"{name} is out of range", where=where, received=repr(value), fix=f"it has to be {self}{alternative}"
        )

    def check_schedule(self, name: str, spec: Any, where: str = "") -> None:
        """Refuses a number, or a schedule (or its spec) with a value, that is out of the range.

        Raises:
            ConfigError: One is.
        """
        for value in _values(spec):
            if is_number(value) and value not in self:
                received = repr(value) if is_number(spec) else f"{value!r} in {spec!r}"
                raise ConfigError(f"{name} is out of range", where=where, received=received, fix=f"it has to be {self}")


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(spec: Any) -> Iterator[Any]:
    """The values between which a schedule, or the spec of one, moves."""
    if dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        spec = dataclasses.asdict(spec)
    if isinstance(spec, Mapping):
        yield from (spec[key] for key in ("value", "start", "end") if key in spec)
        spec = spec.get("points", ())
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        yield from (point[1] for point in spec if isinstance(point, Sequence) and len(point) == 2)
    else:
        yield spec


ANY_NUMBER = Range()
FINITE = Range(open_low=True, open_high=True)
FINITE_NOT_NEGATIVE = Range(low=0.0, open_high=True)
POSITIVE = Range(low=0.0, open_low=True)
NOT_NEGATIVE = Range(low=0.0)
PROBABILITY = Range(low=0.0, high=1.0)
FRACTION = Range(low=0.0, high=1.0, open_high=True)
AT_LEAST_ONE = Range(low=1.0)

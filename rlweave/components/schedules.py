"""Schedules: values that change while training, as pure functions of an absolute counter.

A schedule keeps no state. It is called with a counter that a checkpoint keeps (environment steps, updates: whoever
owns the schedule says which), so training in two halves gives the values of training at once, and a resumed run goes
on where the cut one stood.

Every schedule has two forms of the same formula: `schedule(count)` is plain Python arithmetic for the host, and
`schedule.in_graph(count, ops)` is written in ops, for a graph function whose counter is a Variable:

    @graph_fn
    def step_size(self):
        return self.schedule.in_graph(self.count.value, ops)
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlweave.errors import SpecError, nearest

Number = int | float


@dataclasses.dataclass(frozen=True)
class Schedule(ABC):
    """Base of all schedules; `make_schedule` makes one from a number or a spec."""

    type: ClassVar[str]

    @abstractmethod
    def __call__(self, count: Number) -> float:
        """The value at an absolute counter.

        Args:
            count: How far training is, in the unit of the schedule's `steps`; below 0 counts as 0.

        Returns:
            The value; after the last step it stays what it was there.
        """

    @abstractmethod
    def in_graph(self, count: Any, ops: Any) -> Any:
        """The value at an absolute counter, inside a graph.

        Args:
            count: An integer or float array, usually a scalar.
            ops: The namespace of operators, as bound in the calling graph function.

        Returns:
            A float32 array of the counter's shape.
        """

    def to_spec(self) -> dict[str, Any]:
        """The spec from which `make_schedule` makes an equal schedule."""
        return {"type": self.type, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """The same value for ever.

    >>> Constant(0.5)(1000)
    0.5
    """

    type: ClassVar[str] = "constant"

    value: float

    def __call__(self, count: Number) -> float:
        return float(self.value)

    def in_graph(self, count: Any, ops: Any) -> Any:
        return ops.astype(count, "float32") * 0.0 + self.value


@dataclasses.dataclass(frozen=True)
class _Decay(Schedule):
    """A way from `start` to `end` over `steps`, after which the value stays `end`."""

    start: float
    end: float
    steps: Number

    def __post_init__(self) -> None:
        if not self.steps >= 0:
            raise SpecError(
                f"a {self.type} schedule cannot take a negative number of steps",
                received=f"steps={self.steps!r}",
                fix="give the counter at which `end` is reached; 0 means from the start",
            )

    def fraction(self, count: Number) -> float:
        """How much of the way is done, in [0, 1]; a way of 0 steps is done from the start."""
        if self.steps == 0 or count >= self.steps:
            return 1.0
        return max(count, 0) / self.steps

    def _fraction_in_graph(self, count: Any, ops: Any) -> Any:
        count = ops.astype(count, "float32")
        if self.steps == 0:
            return count * 0.0 + 1.0
        return ops.clip(count / float(self.steps), 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Polynomial(_Decay):
    """`end + (start - end) * (1 - fraction) ** power`, fraction = count / steps.

    >>> Polynomial(2.0, 0.5, steps=100, power=2.0)(50)
    0.875
    """

    type: ClassVar[str] = "polynomial"

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.power > 0:
            raise SpecError("the power of a schedule must be above 0", received=f"power={self.power!r}")

    def __call__(self, count: Number) -> float:
        return self.end + (self.start - self.end) * (1.0 - self.fraction(count)) ** self.power

    def in_graph(self, count: Any, ops: Any) -> Any:
        left = 1.0 - self._fraction_in_graph(count, ops)
        return self.end + (self.start - self.end) * left**self.power


@dataclasses.dataclass(frozen=True)
class Linear(_Decay):
    """A straight line: `start + (end - start) * count / steps`.

    >>> Linear(2.0, 0.5, steps=100)(50)
    1.25
    """

    type: ClassVar[str] = "linear"

    def __call__(self, count: Number) -> float:
        return self.start + (self.end - self.start) * self.fraction(count)

    def in_graph(self, count: Any, ops: Any) -> Any:
        return self.start + (self.end - self.start) * self._fraction_in_graph(count, ops)


@dataclasses.dataclass(frozen=True)
class Exponential(_Decay):
    """Equal ratios in equal times: `start * (end / start) ** (count / steps)`.

    >>> Exponential(1.0, 0.01, steps=100)(50)
    0.1
    """

    type: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.start * self.end > 0:
            raise SpecError(
                "an exponential schedule cannot reach or cross 0",
                received=f"start={self.start!r}, end={self.end!r}",
                fix="use two values of the same sign, neither of them 0, or a linear schedule",
            )

    def __call__(self, count: Number) -> float:
        return self.start * (self.end / self.start) ** self.fraction(count)

    def in_graph(self, count: Any, ops: Any) -> Any:
        return self.start * ops.exp(math.log(self.end / self.start) * self._fraction_in_graph(count, ops))


@dataclasses.dataclass(frozen=True)
class Piecewise(Schedule):
    """Straight lines through points, or steps at them.

    Args:
        points: `((count, value), ...)` with rising counts. Before the first and after the last the value is theirs.
        interpolation: `"linear"`, or `"constant"`: each value holds from its count to the next.

    >>> Piecewise(((0, 1.0), (1000, 1.0), (2000, 0.1)))(1500)
    0.55
    """

    type: ClassVar[str] = "piecewise"

    points: tuple[tuple[Number, float], ...]
    interpolation: str = "linear"

    def __post_init__(self) -> None:
        try:
            points = tuple((count, value) for count, value in self.points)
        except (TypeError, ValueError):
            points = ()
        if not points or any(isinstance(x, bool) or not isinstance(x, Number) for point in points for x in point):
            raise SpecError(
                "a piecewise schedule needs a list of points (count, value)",
                received=f"points={self.points!r}",
                fix="for example [[0, 1.0], [10000, 0.1]]",
            )
        if any(a >= b for (a, _), (b, _) in itertools.pairwise(points)):
            raise SpecError("the counts of a piecewise schedule must rise", received=f"points={self.points!r}")
        if self.interpolation not in ("linear", "constant"):
            raise SpecError(
                "unknown interpolation of a piecewise schedule",
                received=repr(self.interpolation),
                fix=nearest(str(self.interpolation), ["linear", "constant"]),
            )
        object.__setattr__(self, "points", points)  # lists of a JSON spec become tuples: the schedule is hashable

    def __call__(self, count: Number) -> float:
        (previous_count, previous_value), *rest = self.points
        if count <= previous_count:
            return float(previous_value)
        for next_count, next_value in rest:
            if count < next_count:
                if self.interpolation == "constant":
                    return float(previous_value)
                fraction = (count - previous_count) / (next_count - previous_count)
                return previous_value + (next_value - previous_value) * fraction
            previous_count, previous_value = next_count, next_value
        return float(previous_value)

    def in_graph(self, count: Any, ops: Any) -> Any:
        count = ops.astype(count, "float32")
        value = count * 0.0 + self.points[0][1]
        for (left, left_value), (right, right_value) in itertools.pairwise(self.points):
            if self.interpolation == "constant":
                value = ops.where(count >= right, count * 0.0 + right_value, value)
            else:
                fraction = ops.clip((count - left) / float(right - left), 0.0, 1.0)
                value = value + (right_value - left_value) * fraction
        return value

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "points": [list(point) for point in self.points],
            "interpolation": self.interpolation,
        }


SCHEDULES: dict[str, type[Schedule]] = {cls.type: cls for cls in (Constant, Linear, Polynomial, Exponential, Piecewise)}


def per_worker_shares(schedule: Schedule, parts: int) -> Schedule:
    """The schedule for each of several counters that together count what the schedule is over.

    >>> per_worker_shares(Linear(0.0, 1.0, 100), 2)(25)
    0.5
    """
    if isinstance(schedule, Piecewise):
        points = tuple((count / parts, value) for count, value in schedule.points)
        return dataclasses.replace(schedule, points=points)
    return dataclasses.replace(schedule, steps=schedule.steps / parts) if isinstance(schedule, _Decay) else schedule


def make_schedule(spec: Number | Mapping[str, Any] | Sequence[Any] | Schedule) -> Schedule:
    """Makes a schedule from what a configuration file can say.

    Args:
        spec: A number (constant), a list of points (piecewise linear), a mapping such as
            `{"type": "linear", "start": 1.0, "end": 0.05, "steps": 10000}`, or a schedule. It is not changed.

    Returns:
        The schedule.

    Raises:
        SpecError: For an unknown type or key, a missing key, or a value that cannot be.

    >>> make_schedule({"type": "linear", "start": 1.0, "end": 0.0, "steps": 10})(5)
    0.5
    """
    if isinstance(spec, Schedule):
        return spec
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        return Constant(float(spec))
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return Piecewise(tuple(spec))
    if not isinstance(spec, Mapping):
        raise SpecError(
            "not a schedule",
            received=repr(spec),
            fix='give a number, or a spec such as {"type": "linear", "start": 1.0, "end": 0.05, "steps": 10000}',
        )
    values = dict(spec)
    name = values.pop("type", None)
    if name not in SCHEDULES:
        raise SpecError(
            "a schedule's spec needs a type" if name is None else "unknown type of schedule",
            received=repr(name if name is not None else dict(spec)),
            fix=nearest(str(name), SCHEDULES),
        )
    cls = SCHEDULES[name]
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key, value in values.items():
        if key not in fields:
            raise SpecError(f"unknown key {key!r} of a {name} schedule", fix=nearest(str(key), fields))
        if fields[key].type in ("float", "Number") and (isinstance(value, bool) or not isinstance(value, Number)):
            raise SpecError(f"{key!r} of a {name} schedule must be a number", received=repr(value))
    missing = [key for key, field in fields.items() if field.default is dataclasses.MISSING and key not in values]
    if missing:
        raise SpecError(f"a {name} schedule needs {', '.join(map(repr, missing))}", received=repr(dict(spec)))
    return cls(**values)

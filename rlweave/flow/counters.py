"""What a plan counts and measures. Every number means exactly what its name says, and all are kept in checkpoints."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlweave.errors import ConfigError, PlanError


@dataclass
class Counters:
    """The absolute counters of a plan: they go on where they were after a resume, so schedules may depend on them.

    Attributes:
        env_steps_sampled: Environment steps that rollout items delivered to the plan, of sources that count.
        trained_samples: Samples that learners trained on; a sample used in k epochs counts k times.
        gradient_steps: Optimizer steps that learners took.
        updates: Calls of a learner's ``update`` (one weight version each).
        items: Items that reached the end of the plan.
        drops: Items thrown away as declared, per operator.
        failures: Failures after which the plan went on, per operator.
        replacements: Actors that were restarted, per operator.
        lost_items: Items lost with actors that failed, or on which a learner failed, per operator.
        lost_updates: Updates lost because a learner was restarted from an older state, per operator.
    """

    env_steps_sampled: int = 0
    trained_samples: int = 0
    gradient_steps: int = 0
    updates: int = 0
    items: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    replacements: dict[str, int] = field(default_factory=dict)
    lost_items: dict[str, int] = field(default_factory=dict)
    lost_updates: dict[str, int] = field(default_factory=dict)

    @property
    def replay_ratio(self) -> float:
        """Trained samples per environment step over the whole run (0.0 before the first step)."""
        return self.trained_samples / self.env_steps_sampled if self.env_steps_sampled else 0.0

    def drop(self, operator: str) -> None:
        """Counts one item that ``operator`` threw away."""
        self.drops[operator] = self.drops.get(operator, 0) + 1

    def fail(self, operator: str) -> None:
        """Counts a failure of ``operator`` after which the plan goes on."""
        self.failures[operator] = self.failures.get(operator, 0) + 1

    def replace(self, operator: str) -> None:
        """Counts an actor of ``operator`` that was restarted."""
        self.replacements[operator] = self.replacements.get(operator, 0) + 1

    def lose(self, operator: str, items: int) -> None:
        """Counts items that were lost with an actor of ``operator``."""
        if items:
            self.lost_items[operator] = self.lost_items.get(operator, 0) + items

    def lose_updates(self, operator: str, updates: int) -> None:
        """Counts lost updates of a learner."""
        if updates:
            self.lost_updates[operator] = self.lost_updates.get(operator, 0) + updates

    def state_dict(self) -> dict[str, Any]:
        """All counters as JSON-able data."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the counters of ``state``."""
        for name in ("env_steps_sampled", "trained_samples", "gradient_steps", "updates", "items"):
            setattr(self, name, int(state[name]))
        for name in ("drops", "failures", "replacements", "lost_items", "lost_updates"):
            counts = state[name]
            setattr(self, name, {str(operator): int(count) for operator, count in counts.items()})


class Every:
    """Fires when a counter crosses a multiple of an interval: once per crossing, whatever the counter's step.

    With 32 environments a counter moves by 32 and never hits 50,000 exactly; it is crossed at 50,016:

    >>> every = Every(50_000)
    >>> [count for count in range(0, 120_000, 32) if every(count)]
    [50016, 100000]

    Args:
        interval: Distance between two crossings, in the counter's unit; 0 never fires.
        start: The counter's value now. Multiples up to it have fired already.
    """

    def __init__(self, interval: int, start: int = 0) -> None:
        if interval < 0:
            raise ConfigError(
                "an interval must not be negative", where="Every", received=str(interval), fix="use 0 for never"
            )
        self.interval = interval
        self._fired = start // interval if interval else 0

    def __call__(self, count: int) -> int:
        """Number of multiples crossed since the last call; usually 0 or 1, more when ``count`` jumped over several."""
        if not self.interval:
            return 0
        reached = count // self.interval
        crossed = reached - self._fired
        if crossed <= 0:
            return 0
        self._fired = reached
        return crossed

    def is_due(self, count: int) -> bool:
        """Whether the next call fires."""
        return bool(self.interval) and count // self.interval > self._fired

    def state_dict(self) -> dict[str, int]:
        """JSON-able state."""
        return {"interval": self.interval, "fired": self._fired}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Takes over a state. With another interval than the saved one, the saved position is kept."""
        saved_interval, fired = int(state["interval"]), int(state["fired"])
        self._fired = fired * saved_interval // self.interval if self.interval else 0


@dataclass
class Timer:
    """How many items an operator worked on and the seconds it took for them, its upstream not included."""

    items: int = 0
    seconds: float = 0.0

    def state_dict(self) -> dict[str, float]:
        """JSON-able state."""
        return {"items": self.items, "seconds": self.seconds}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Takes over a state."""
        self.items, self.seconds = int(state["items"]), float(state["seconds"])


class LagHistogram:
    """How many items had which weight lag (in weight versions).

    >>> lags = LagHistogram()
    >>> for lag in (0, 1, 1): lags.add(lag)
    >>> lags.counts, lags.maximum, round(lags.mean, 3)
    ({0: 1, 1: 2}, 1, 0.667)
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, lag: int) -> None:
        """Counts one item."""
        self.counts[lag] = self.counts.get(lag, 0) + 1

    @property
    def maximum(self) -> int:
        """The largest lag seen (0 before the first item)."""
        return max(self.counts, default=0)

    @property
    def mean(self) -> float:
        """The mean lag (0.0 before the first item)."""
        total = sum(self.counts.values())
        return sum(lag * count for lag, count in self.counts.items()) / total if total else 0.0

    def state_dict(self) -> dict[str, int]:
        """JSON-able state: lags as strings."""
        return {str(lag): count for lag, count in self.counts.items()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Takes over a state."""
        self.counts = {int(lag): int(count) for lag, count in state.items()}


class MeanMetrics:
    """Means of scalar metrics since they were last taken.

    Values may be arrays on a device: reading one waits for the device, so a value is read only when a report is
    made or when many newer ones have piled up behind it.
    """

    _unread_limit = 64

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._unread: deque[tuple[str, Any, bool]] = deque()

    def add(self, prefix: str, values: Mapping[str, Any], finite: bool = False) -> None:
        """Adds one value to each of the metrics ``prefix/name``.

        Args:
            prefix: Name of the operator.
            values: By metric.
            finite: Whether one that is not finite is an error. It is found when the value is read: one that is not on
                a device, at once.

        Raises:
            PlanError: One of them, or of those before, is not finite and should be.
        """
        for name, value in values.items():
            path, here = f"{prefix}/{name}", type(value) is float
            if finite and here and not math.isfinite(value):
                raise _diverged(path, value)
            if here and not self._unread:
                self._count(path, value)
            else:  # sums are made in the order in which values came
                self._unread.append((path, value, finite))
        while len(self._unread) > self._unread_limit * max(1, len(values)):
            self._read(*self._unread.popleft())

    def take(self) -> dict[str, float]:
        """The means since the last call, by name, and starts anew."""
        while self._unread:
            self._read(*self._unread.popleft())
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def _read(self, name: str, value: Any, finite: bool) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise PlanError(
                "a metric is not a single number",
                where=f"metric {name!r}",
                received=f"{type(value).__name__} of shape {getattr(value, 'shape', '?')}",
                fix="return one number per metric, such as the mean over the batch",
            ) from error
        if finite and not math.isfinite(number):
            raise _diverged(name, number)
        self._count(name, number)

    def _count(self, name: str, number: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + number
        self._counts[name] = self._counts.get(name, 0) + 1

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state: sums and counts so far."""
        while self._unread:
            self._read(*self._unread.popleft())
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._sums = {str(name): float(total) for name, total in state["sums"].items()}
        self._counts = {str(name): int(count) for name, count in state["counts"].items()}
        self._unread.clear()


def _diverged(name: str, value: float) -> PlanError:
    operator, _, metric = name.partition("/")
    return PlanError(
        "training has diverged",
        where=f"operator {operator!r}",
        received=f"{metric} = {value}",
        fix="go back to the last checkpoint; lower the learning rate, clip gradients, or scale rewards (a metric that "
        "has no value now is left out by the learner)",
    )

"""Memories that are wrong: priorities of other rows, arrays that are shared, state that is no variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import IntBox
from rlweave.testing.checks.findings import Cause
from tests.mutants import floats, ints, mutant

CAPACITY = 8

# -- priorities ------------------------------------------------------------------------------------------------------


class PriorityMemory(Component):
    """Records that are drawn in proportion to their priorities."""

    def __init__(self) -> None:
        super().__init__("memory", device="host")

    def create_variables(self, records: Any) -> None:
        self.records = self.variable("records", (CAPACITY, *records.shape), 0.0, trainable=False)
        self.priorities = self.variable("priorities", (CAPACITY,), 0.0, trainable=False)
        self.inserted = self.variable("inserted", (), 0, trainable=False, dtype="int32")

    @graph_fn(host=True, differentiable=False, spaces="_nothing")
    def insert(self, records: Any) -> None:
        slots = (int(self.inserted.value) + np.arange(len(records))) % CAPACITY
        self.records.assign_at(slots, records)
        self.priorities.assign_at(slots, np.ones(len(records), np.float32))
        self.inserted.assign(self.inserted.value + np.int32(len(records)))

    @api(static=("batch_size",))
    def sample(self, batch_size: int) -> Any:
        return self._sample(batch_size)

    @graph_fn(host=True, differentiable=False, returns=3)
    def _sample(self, batch_size: int) -> Any:
        filled = max(min(int(self.inserted.value), CAPACITY), 1)
        priorities = np.maximum(np.asarray(self.priorities.value)[:filled], 1e-6)
        ends = np.cumsum(priorities, dtype=np.float32)
        indices = np.searchsorted(ends, ops.random.uniform((batch_size,)) * ends[-1], side="right")
        indices = np.minimum(indices, filled - 1).astype(np.int32)
        weights = priorities.min() / priorities[indices]
        return np.asarray(self.records.value)[indices], indices, weights

    @graph_fn(host=True, differentiable=False, spaces="_nothing")
    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        self.priorities.assign_at(self._rows(indices), np.abs(td_errors) + np.float32(1e-6))

    def _rows(self, indices: Any) -> Any:
        return indices

    def _nothing(self, *spaces: Any, **named: Any) -> None:
        return None


class PrioritiesOfTheNewestRows(PriorityMemory):
    """RLlib #6534: by the time of the update other records stood where the batch had been drawn."""

    def _rows(self, indices: Any) -> Any:
        return (int(self.inserted.value) - 1 - np.arange(len(indices))) % CAPACITY


class PrioritiesOneRowOff(PriorityMemory):
    """RLHive #296: indices into a prioritized memory were off by one."""

    def _rows(self, indices: Any) -> Any:
        return (indices + 1) % CAPACITY


# -- arrays ----------------------------------------------------------------------------------------------------------


class RewardClipping(Component):
    """Rewards within [-1, 1], on the host."""

    def __init__(self) -> None:
        super().__init__("clipping", device="host")

    @graph_fn(host=True, differentiable=False, spaces="_same")
    def call(self, rewards: Any) -> Any:
        return np.clip(rewards, -1.0, 1.0)

    def _same(self, rewards: Any) -> Any:
        return rewards


class RewardsClippedInPlace(RewardClipping):
    """QMIX of RLlib (#4742, #5731): a masked array was an alias, and what it was taken from was masked with it."""

    @graph_fn(host=True, differentiable=False, spaces="_same")
    def call(self, rewards: Any) -> Any:
        np.clip(rewards, -1.0, 1.0, out=rewards)
        return rewards.copy()


class RewardsInABufferThatIsUsedAgain(RewardClipping):
    """SuperSuit #116: wrappers returned their buffer itself, which the next step overwrote."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[Any, Any] = {}

    @graph_fn(host=True, differentiable=False, spaces="_same")
    def call(self, rewards: Any) -> Any:
        buffer = self._buffers.setdefault(rewards.shape, np.empty_like(rewards))
        return np.clip(rewards, -1.0, 1.0, out=buffer)


class ScaledPixels(Component):
    """Pixels in [0, 1]."""

    def __init__(self) -> None:
        super().__init__("pixels")

    @graph_fn
    def call(self, observations: Any) -> Any:
        return observations / 255.0


class PixelsScaledInPlace(ScaledPixels):
    """DI-engine #333 took one kind of operation for the other: in place, its caller sees the change afterwards."""

    @graph_fn
    def call(self, observations: Any) -> Any:
        observations /= 255.0
        return observations + 0.0


# -- state -----------------------------------------------------------------------------------------------------------


class StepCounter(Component):
    """Counts steps, and says how many there were."""

    def __init__(self) -> None:
        super().__init__("counter", device="host")

    def create_variables(self) -> None:
        self.total = self.variable("total", (), 0, trainable=False, dtype="int64")

    @graph_fn(host=True, differentiable=False, spaces="_number")
    def count(self, rewards: Any) -> Any:
        return self._counted(len(rewards))

    def _counted(self, steps: int) -> Any:
        self.total.assign(self.total.value + np.int64(steps))
        return np.array(self.total.value)

    def _number(self, rewards: Any) -> Any:
        return IntBox(dtype="int64")


class StepCounterInAnAttribute(StepCounter):
    """tensorpack #1094, SB3 #1629: what schedules count by was not in the model, and began anew when it was loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = [0]

    def _counted(self, steps: int) -> Any:
        self._seen[0] += steps
        return np.asarray(self._seen[0], np.int64)


class TimeStamps(Component):
    """How long ago each record was inserted, in steps."""

    def __init__(self) -> None:
        super().__init__("ages")

    @graph_fn
    def ages(self, times: Any, time_step: Any) -> Any:
        return time_step - self._stored(times)

    def _stored(self, times: Any) -> Any:
        return times


class TimeStampsInFloats(TimeStamps):
    """mujoco_playground #48 lost its step counter at 2^31; in float32 counting ends at 2^24."""

    def _stored(self, times: Any) -> Any:
        return ops.astype(ops.astype(times, "float32"), "int32")


class ExpectedValue(Component):
    """The mean of a distribution over atoms."""

    def __init__(self) -> None:
        super().__init__("expectation")

    @graph_fn
    def call(self, probabilities: Any) -> Any:
        return ops.sum(probabilities * self._atoms(), -1)

    def _atoms(self) -> Any:
        return ops.linspace(-1.0, 1.0, 5)


class ExpectedValueInDoubles(ExpectedValue):
    """Tianshou #65, SB3 #484: what NumPy makes is float64 where nobody says otherwise."""

    def _atoms(self) -> Any:
        return ops.asarray(np.linspace(-1.0, 1.0, 5))


_RECORDS = {"records": floats(2), "indices": ints(CAPACITY), "td_errors": floats()}


def _held(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Different rows, of records that are there."""
    if method == "update_priorities":
        count = len(arguments["indices"])
        arguments["indices"] = ((np.arange(count) * 3 + arguments["indices"][0]) % count).astype(np.int32)
    return arguments


_MEMORY: dict[str, Any] = {
    "calls": ("insert", "update_priorities", "sample"),
    "static": {"sample": {"batch_size": 5}},
    "adapt": _held,
    "gradients": (),
}

MUTANTS = (
    mutant(PriorityMemory, PrioritiesOfTheNewestRows, Cause.PRIORITY_OF_ANOTHER_ROW, _RECORDS, **_MEMORY),
    mutant(PriorityMemory, PrioritiesOneRowOff, Cause.PRIORITY_OF_ANOTHER_ROW, _RECORDS, **_MEMORY),
    mutant(RewardClipping, RewardsClippedInPlace, Cause.INPUT_CHANGED, {"rewards": floats()}),
    mutant(RewardClipping, RewardsInABufferThatIsUsedAgain, Cause.SHARED_MEMORY, {"rewards": floats()}),
    mutant(ScaledPixels, PixelsScaledInPlace, Cause.INPUT_CHANGED, {"observations": floats(4, low=0.0, high=255.0)}),
    mutant(
        StepCounter,
        StepCounterInAnAttribute,
        Cause.INCOMPLETE_STATE,
        {"rewards": floats()},
        unused={"count": ("rewards",)},  # only how many there are
    ),
    mutant(
        TimeStamps,
        TimeStampsInFloats,
        Cause.INTEGERS_ROUNDED,
        {"times": IntBox(0, 2**30, add_batch_rank=True), "time_step": IntBox(2**30, 2**31 - 1)},
    ),
    mutant(ExpectedValue, ExpectedValueInDoubles, Cause.WIDE_FLOATS, {"probabilities": floats(5, low=0.0, high=1.0)}),
)

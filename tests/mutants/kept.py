"""What components keep, wrong: records, states of environments, copies of networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing.checks.findings import Cause
from tests.mutants import floats, mutant

CAPACITY, ENVIRONMENTS = 32, 4


class UniformMemory(Component):
    """A ring of records, drawn evenly."""

    def __init__(self) -> None:
        super().__init__("memory", device="host")

    def create_variables(self, records: Any) -> None:
        self.cells = {
            name: self.variable(name, (CAPACITY, *space.shape), 0, trainable=False, dtype=space.dtype)
            for name, space in records.items()
        }
        self.inserted = self.variable("inserted", (), 0, trainable=False, dtype="int32")

    @graph_fn(host=True, differentiable=False, spaces="_nothing")
    def insert(self, records: Any) -> None:
        count = len(records["rewards"])
        slots = (int(self.inserted.value) + np.arange(count)) % CAPACITY
        for name, cell in self.cells.items():
            cell.assign_at(slots, records[name])
        self.inserted.assign(self.inserted.value + np.int32(count))

    @api(static=("batch_size",))
    def sample(self, batch_size: int) -> Any:
        return self._sample(batch_size)

    @graph_fn(host=True, differentiable=False, returns=1)
    def _sample(self, batch_size: int) -> Any:
        indices = ops.random.randint((batch_size,), 0, self._filled())
        return {name: np.asarray(cell.value)[self._row_of(name, indices)] for name, cell in self.cells.items()}

    def _filled(self) -> int:
        return max(min(int(self.inserted.value), CAPACITY), 1)

    def _row_of(self, name: str, indices: Any) -> Any:
        return indices

    def _nothing(self, *spaces: Any, **named: Any) -> None:
        return None


class MemoryOfEmptyRows(UniformMemory):
    """assume #855: the buffer was taken for full too early, and empty rows were sampled."""

    def _filled(self) -> int:
        return CAPACITY


class RewardsOfOtherRecords(UniformMemory):
    """Tianshou #82: one leaf of a batch moved the indices, and those after it came from other transitions."""

    def _row_of(self, name: str, indices: Any) -> Any:
        return (indices + 1) % self._filled() if name == "rewards" else indices


class RecurrentActor(Component):
    """A recurrent layer that keeps the state of each environment itself."""

    def __init__(self) -> None:
        super().__init__("recurrent-actor")

    def create_variables(self, inputs: Any) -> None:
        self.state = self.variable("state", (ENVIRONMENTS, *inputs.shape), 0.0, trainable=False)

    @graph_fn
    def call(self, inputs: Any, episode_start: Any) -> Any:
        after = ops.tanh(0.5 * self._before(ops.expand_dims(episode_start, -1)) + inputs)
        self.state.assign(self._kept(after, ops.expand_dims(episode_start, -1)))
        return after

    def _before(self, start: Any) -> Any:
        return ops.where(start, 0.0, self.state.value)

    def _kept(self, after: Any, start: Any) -> Any:
        return after


class KeptStateIsResetAfterTheStep(RecurrentActor):
    """pytorch-a2c-ppo-acktr-gail #206 asks where states are reset; here a step too late, the first one sees the old."""

    def _before(self, start: Any) -> Any:
        return self.state.value

    def _kept(self, after: Any, start: Any) -> Any:
        return ops.where(start, 0.0, after)


class ValueWithTarget(Component):
    """A value function and its target network."""

    def __init__(self) -> None:
        super().__init__("value")
        self.online = Dense(2, scope="online")
        self.target = self.online.copy(scope="target", trainable=False, initial="fresh")

    @api
    def call(self, observations: Any) -> Any:
        return self.online.call(observations)

    @api
    def target_values(self, observations: Any) -> Any:
        return self.target.call(observations)

    @api
    def sync_target(self) -> None:
        self.target.sync(self.online)


class TargetIsCopiedBack(ValueWithTarget):
    """thesouther/MARL #8 named the wrong network in this line: its target took its own weights; here the other does."""

    @api
    def sync_target(self) -> None:
        self.online.sync(self.target)


_MEMORY: dict[str, Any] = {
    "calls": ("insert", "sample"),
    "static": {"sample": {"batch_size": 5}},
    "gradients": (),
}
_RECORDS = {"records": Dict(observations=FloatBox(shape=(2,)), actions=IntBox(3), rewards=FloatBox()).with_batch_rank()}
_KEPT = {
    "inputs": FloatBox(shape=(2,), add_batch_rank=ENVIRONMENTS),
    "episode_start": BoolBox(add_batch_rank=ENVIRONMENTS),
}

MUTANTS = (
    mutant(UniformMemory, MemoryOfEmptyRows, Cause.NEVER_INSERTED, _RECORDS, **_MEMORY),
    mutant(UniformMemory, RewardsOfOtherRecords, Cause.NEVER_INSERTED, _RECORDS, **_MEMORY),
    mutant(RecurrentActor, KeptStateIsResetAfterTheStep, Cause.STATE_NOT_RESET, _KEPT, batch_sizes=(ENVIRONMENTS,)),
    mutant(
        ValueWithTarget,
        TargetIsCopiedBack,
        Cause.WRONG_WEIGHTS_MOVE,
        {"observations": floats(4)},
        calls=("call", "target_values", "sync_target", "call", "target_values"),
    ),
)

"""Memories that hand out what nobody inserted, or that give priorities to other records."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import Cause, Descriptor, check

RECORDS = Dict(observations=FloatBox(shape=(2,)), rewards=FloatBox(), actions=IntBox(3)).with_batch_rank()
SPACES = {
    "records": RECORDS,
    "indices": IntBox(5, add_batch_rank=True),
    "td_errors": FloatBox(add_batch_rank=True),
}
CAPACITY = 16


class Memory(Component):
    """A ring that is drawn from in proportion to priorities."""

    def __init__(self):
        super().__init__("memory", device="host")

    def create_variables(self, records):
        self.cells = {
            name: self.variable(name, (CAPACITY, *space.shape), 0, trainable=False, dtype=space.dtype)
            for name, space in records.items()
        }
        self.priorities = self.variable("priorities", (CAPACITY,), 0.0, trainable=False)
        self.inserted = self.variable("inserted", (), 0, trainable=False, dtype="int32")

    @graph_fn(host=True, differentiable=False, spaces="nothing")
    def insert(self, records):
        count = len(records["rewards"])
        slots = (int(self.inserted.value) + np.arange(count)) % CAPACITY
        for name, cell in self.cells.items():
            cell.assign_at(slots, records[name])
        self.priorities.assign_at(slots, np.ones(count, np.float32))
        self.inserted.assign(self.inserted.value + np.int32(count))

    @api(static=("batch_size",))
    def sample(self, batch_size):
        return self._sample(batch_size)

    @graph_fn(host=True, differentiable=False, returns=2)
    def _sample(self, batch_size):
        ends = np.cumsum(np.asarray(self.priorities.value)[: self.filled()], dtype=np.float32)
        found = np.searchsorted(ends, ops.random.uniform((batch_size,)) * ends[-1], side="right")
        indices = np.minimum(found, len(ends) - 1).astype(np.int32)
        records = {name: np.asarray(cell.value)[self.read_at(name, indices)] for name, cell in self.cells.items()}
        return self.handed_out(records), indices

    @graph_fn(host=True, differentiable=False, spaces="nothing")
    def update_priorities(self, indices, td_errors):
        self.priorities.assign_at(self.written_at(indices), np.abs(td_errors) + np.float32(1e-3))

    def filled(self):
        return max(min(int(self.inserted.value), CAPACITY), 1)

    def read_at(self, name, indices):
        return indices

    def handed_out(self, records):
        return records

    def written_at(self, indices):
        return indices

    def nothing(self, *spaces, **named):
        return None


class MemoryOfOtherRewards(Memory):
    def read_at(self, name, indices):
        return (indices + 1) % self.filled() if name == "rewards" else indices


class MemoryOfEmptyRows(Memory):
    def create_variables(self, records):
        super().create_variables(records)
        self.spare = self.variable("spare", (CAPACITY,), 1.0, trainable=False)

    @graph_fn(host=True, differentiable=False, returns=2)
    def _sample(self, batch_size):
        indices = ops.random.randint((batch_size,), 0, CAPACITY)
        weights = np.asarray(self.priorities.value)[indices] * np.asarray(self.spare.value)[indices]
        records = {name: np.asarray(cell.value)[indices] for name, cell in self.cells.items()}
        return {**records, "rewards": records["rewards"] + 0 * weights}, indices


class MemoryThatDoublesRewards(Memory):
    """What it hands out is not always what was inserted."""

    def handed_out(self, records):
        return {**records, "rewards": records["rewards"] * np.float32(2.0)}


class MemoryOfPositions(Memory):
    """Takes the position in the batch for the number of the record."""

    def written_at(self, indices):
        return np.arange(len(indices)) + 0 * indices


def described(component):
    return Descriptor(
        component.__name__,
        component,
        component,
        SPACES,
        calls=("insert", "update_priorities", "sample"),
        static={"sample": {"batch_size": 5}},
        adapt=lambda method, given: (
            {**given, "indices": given["indices"] % len(given["indices"])} if "indices" in given else given
        ),
        gradients=(),
    )


@pytest.mark.parametrize("component", [Memory, MemoryThatDoublesRewards])
def test_a_memory_of_whole_records_passes(component):
    report = check(described(component))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("component", "seen"),
    [(MemoryOfOtherRewards, "are of different ones"), (MemoryOfEmptyRows, "that it drew are none of those")],
)
def test_records_that_nobody_inserted_are_found(component, seen):
    (finding,) = (f for f in check(described(component)) if f.cause is Cause.NEVER_INSERTED)
    assert finding.where.startswith("memory._sample, checks/test_memories.py:")
    assert seen in finding.seen


def test_priorities_of_positions_in_the_batch_are_found():
    (finding,) = (f for f in check(described(MemoryOfPositions)) if f.cause is Cause.PRIORITY_OF_ANOTHER_ROW)
    assert finding.where.startswith("memory.update_priorities, checks/test_memories.py:")

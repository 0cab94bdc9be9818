"""A shard of a prioritized replay memory: the memory component on NumPy, alone in its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlweave.agents.kept_memory import LARGE_BYTES
from rlweave.components import PrioritizedReplay
from rlweave.envs.seeding import derived_seed
from rlweave.flow import SampleBatch
from rlweave.graph import build
from rlweave.runs.states import Large
from rlweave.spaces import FloatBox, IntBox, Space

#: Upper bound of the records of one shard: the numbers of its replacement begin there.
_NUMBERS = 1 << 40


class ReplayShard:
    """Keeps transitions with their priorities, and samples batches by priority.

    Records have numbers, which are never reused: a priority that arrives after its record was overwritten, or belonged
    to a shard that failed, does not reach another record.

    Importance weights correct for the draws within this shard. Shards get the same number of items in turns and serve
    the same number of batches, so nothing corrects between them (nor does it in the paper, or in RLlib).

    Args:
        memory: The memory component.
        records: Space of one transition.
        batch_size: Transitions in a batch.
        seed: Of its samples.
    """

    def __init__(self, memory: PrioritizedReplay, records: Space, batch_size: int, seed: int) -> None:
        self.capacity, self.batch_size, self.seed = memory.capacity, batch_size, seed
        spaces = {
            "records": records.with_batch_rank(),
            "indices": IntBox(add_batch_rank=True),
            "td_errors": FloatBox(add_batch_rank=True),
        }
        methods = ("insert", "sample", "update_priorities")
        static = {"sample": {"batch_size": batch_size}}
        self.graph = build(memory, spaces, backend="numpy", seed=seed, methods=methods, static=static)
        self.inserted = 0
        """Records so far."""
        self._first_number = 0

    def replacing(self, number: int) -> None:
        """Begins with a seed and record numbers of its own, as the replacement of `number` failed shards."""
        self._first_number = number * _NUMBERS
        self.graph.reseed(derived_seed(self.seed, f"replacement {number}"))

    def insert(self, batch: SampleBatch) -> None:
        """Stores transitions: those of `DQN.record_space`, and their ``priorities`` (N,)."""
        if not batch.data:  # nothing is complete in the first steps of a window
            return
        records = dict(batch.data)
        priorities = records.pop("priorities")
        self.graph.insert(records)
        first, self.inserted = self.inserted, self.inserted + len(priorities)
        numbers = np.arange(max(first, self.inserted - self.capacity), self.inserted)
        slots = (numbers % self.capacity).astype(np.int32)
        self.graph.update_priorities(slots, priorities[numbers - first])

    def sample(self) -> SampleBatch:
        """A batch: ``records``, their ``numbers`` (N,) int64 for `update_priorities`, importance ``weights`` (N,)."""
        records, slots, weights = self.graph.sample(batch_size=self.batch_size)
        newest = self.inserted - 1
        numbers = self._first_number + newest - (newest - slots.astype(np.int64)) % self.capacity
        return SampleBatch({"records": records, "numbers": numbers, "weights": weights})

    def update_priorities(self, indices: np.ndarray, priorities: np.ndarray) -> int:
        """Sets priorities.

        Args:
            indices: Numbers of records, as in a batch, (N,).
            priorities: Absolute TD errors, (N,).

        Returns:
            The number of records that are not there any more.
        """
        numbers = indices - self._first_number
        here = (numbers >= max(0, self.inserted - self.capacity)) & (numbers < self.inserted)
        slots = (numbers[here] % self.capacity).astype(np.int32)
        self.graph.update_priorities(slots, np.asarray(priorities, np.float32)[here])
        return int(len(here) - np.count_nonzero(here))

    def state_dict(self) -> dict[str, Any]:
        """Everything: records, priorities, random state, counters."""
        graph = self.graph.state_dict()
        large = Large({path: value for path, value in graph.items() if value.nbytes >= LARGE_BYTES})
        rest = {path: value for path, value in graph.items() if path not in large}
        numbers = {"inserted": self.inserted, "first_number": self._first_number}
        return {"graph": rest, "memory": large, **numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.graph.load_state_dict({**state["graph"], **state["memory"]})
        self.inserted, self._first_number = int(state["inserted"]), int(state["first_number"])


class ShardFactory:
    """Makes a shard in its process.

    Args:
        make_memory: Makes the memory component.
        records: Space of one transition.
        batch_size: Transitions in a batch.
        seed: Of its samples.
    """

    def __init__(
        self, make_memory: Callable[[], PrioritizedReplay], records: Space, batch_size: int, seed: int
    ) -> None:
        self.make_memory, self.records, self.batch_size, self.seed = make_memory, records, batch_size, seed

    def __call__(self) -> ReplayShard:
        """The shard."""
        return ReplayShard(self.make_memory(), self.records, self.batch_size, self.seed)

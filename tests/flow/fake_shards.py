"""Shards of a replay memory that remember everything, and a learner whose priorities name the shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.flow import SampleBatch
from tests.flow.fakes import FakeLearner

BATCH = 8


class FakeShard:
    """Remembers what it was given; a sample says which shard made it, and with which number."""

    made: list[FakeShard]

    def __init__(
        self, number: int, made: list[FakeShard] | None = None, fails_at: int = -1, raises_every: int = 0
    ) -> None:
        self.number, self.fails_at, self.raises_every = number, fails_at, raises_every
        self.inserted: list[SampleBatch] = []
        self.samples = 0
        self.replaces = 0
        self.priorities: list[tuple[list[int], list[float]]] = []
        if made is not None:
            made.append(self)

    @property
    def steps(self) -> int:
        return sum(batch.num_steps for batch in self.inserted)

    def replacing(self, number: int) -> None:
        self.replaces = number

    def insert(self, batch: SampleBatch) -> None:
        if len(self.inserted) == self.fails_at:
            raise MemoryError("full")
        self.inserted.append(batch)

    def sample(self) -> SampleBatch:
        assert self.inserted, "sampled from an empty shard"
        self.samples += 1
        if self.raises_every and self.samples % self.raises_every == 0:
            raise ArithmeticError(f"sample {self.samples}")
        numbers = 10_000 * self.replaces + 100 * self.samples + np.arange(BATCH)
        return SampleBatch({"shard": np.full(BATCH, self.number), "numbers": numbers})

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        gone = int(np.count_nonzero(indices // 10_000 != self.replaces))
        self.priorities.append((indices.tolist(), priorities.tolist()))
        return gone

    def state_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "inserted": [batch.state_dict() for batch in self.inserted],
            "priorities": [list(pair) for pair in self.priorities],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.samples = state["samples"]
        self.inserted = [SampleBatch(**batch) for batch in state["inserted"]]
        self.priorities = [(list(indices), list(values)) for indices, values in state["priorities"]]


class Prioritizing(FakeLearner):
    """Its priorities name the shard and the update."""

    def __init__(self) -> None:
        super().__init__()
        self.trained_on: list[int] = []

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        self.trained_on.append(int(batch["shard"][0]))
        return {**super().update(batch), "priorities": (batch["numbers"], batch["shard"] + 0.25)}

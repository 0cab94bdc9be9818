"""Samples from a replay memory in shards, as a parallel stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.context import Context
from rlweave.flow.counters import Counters
from rlweave.flow.engine import ActorLost
from rlweave.flow.envelope import UNKNOWN_VERSION, Envelope
from rlweave.flow.item_types import positive
from rlweave.flow.operator import Graph, Operator
from rlweave.flow.plan_errors import failure
from rlweave.flow.replay_shards import ReplayShards, ShardRecord
from rlweave.flow.sources import RolloutSource
from rlweave.flow.supervision import FailureRule


class ShardSource(RolloutSource):
    """The shards of a memory as sources. A shard is asked for samples when it holds its share of ``min_size``.

    Behind a rate limiter, samples count as taken when they are asked for: the limiter holds back the asking, so that
    batches may be under way while others are trained on, and the replay ratio is right all the same.

    Args:
        shards: The memory.
        min_size: Environment steps that all shards together hold before the first sample; each needs its share, also
            one that was restarted.
        save: Whether checkpoints hold what is in the shards.
        fragments: Samples that a shard draws per call.
    """

    in_rounds = False
    always_asked = False
    watched_by_others = True

    def __init__(self, shards: ReplayShards, min_size: int, save: bool, fragments: int = 1) -> None:
        super().__init__(shards, fragments, name="parallel_replay")
        self.memory = self.draws_from = shards
        self.min_size, self.save = positive("min_size", min_size, self.name), save
        self.share = -(-min_size // len(shards))
        self.stores: list[Operator] = []
        self.limited = False
        self.permit: Callable[[], bool] | None = None
        """What a rate limiter says about another sample."""
        self.sampled = 0
        """Samples asked for so far, those that were lost left out."""
        self._record: ShardRecord | None = None

    def check(self, graph: Graph) -> None:
        """The memory must be able to fill."""
        super().check(graph)
        self.stores = graph.stores_into(self.memory)
        problem, fix = "", "give the plan a branch that ends in StoreToBuffer with these very shards"
        if self.memory.capacity is not None and self.min_size > self.memory.capacity:
            problem = f"min_size {self.min_size} is above the memory's capacity {self.memory.capacity}"
            fix = "lower min_size, or use a larger memory"
        elif not self.stores:
            problem = "nothing in the plan stores into it"
        elif all(self in graph.ancestors(store) for store in self.stores):
            names = ", ".join(repr(store.name) for store in self.stores)
            problem = f"only {names} stores into it, which itself waits for its samples"
        if problem:
            raise PlanError(
                f"the memory of {self.name!r} can never fill",
                where=f"operator {self.name!r}, memory of {len(self.memory)} shards",
                received=problem,
                fix=fix,
            )

    def start(self, context: Context) -> None:
        """Finds the shards."""
        self._record = context.shards(self.memory)

    @property
    def record(self) -> ShardRecord:
        """What the plan knows of the shards."""
        assert self._record is not None
        return self._record

    # -- what a gather asks -------------------------------------------------------------------------------------

    def may_ask(self, index: int) -> bool:
        """Whether a shard may be asked for a sample now."""
        if self.exhausted() or not self.holds_share(index):
            return False
        return self.permit is None or not self.limited or self.permit()

    def asked(self) -> None:
        """Counts the batches of a call."""
        self.sampled += self.next_size()

    def lost(self, items: int) -> None:
        """Takes back batches that will not come."""
        self.sampled -= items * self.memory.batch_size

    def count(self, counters: Counters, num_steps: int) -> None:
        """A batch that came: samples are no environment steps."""
        self.sampled += num_steps - self.memory.batch_size

    def exhausted(self) -> bool:
        """Whether no more data will come."""
        return not self.limited and all(store.ended for store in self.stores)

    def take_dead(self) -> list[int]:
        """Shards that were found dead, or hanging, by who gave them something."""
        return self.record.take_dead((self.failure_rule or FailureRule()).timeout)

    def stopped(self, index: int) -> None:
        """Notes that a shard is gone."""
        self.record.stop(index)

    def started(self, index: int) -> None:
        """Notes that a new one is in its place."""
        self.record.started(index)

    # -- what a rate limiter asks -------------------------------------------------------------------------------

    def holds_share(self, index: int) -> bool:
        """Whether a shard lives and holds its share of ``min_size``."""
        record = self.record
        return record.alive[index] and record.filled[index] and record.held(index) >= self.share

    def ready(self) -> bool:
        """Whether a shard can serve a batch."""
        return any(map(self.holds_share, range(len(self.memory))))

    def next_size(self) -> int:
        """Samples of the next call."""
        return self.fragments * self.memory.batch_size

    # -- telling ------------------------------------------------------------------------------------------------

    def measures(self) -> dict[str, float]:
        """Environment steps in the shards and lost with shards, and priorities that came too late."""
        record = self.record
        held = sum(map(record.held, range(len(self.memory))))
        return {"held_steps": held, "lost_steps": record.lost_steps, "late_priorities": record.late_priorities}

    def obstacle(self) -> str:
        """Shards that do not hold enough."""
        return "" if self.ready() else f"no shard holds its share of min_size {self.min_size} yet"

    def placement(self) -> str:
        """How many actors."""
        return f"{len(self.memory)} shards"

    def note(self) -> str:
        """Settings."""
        return ", ".join(filter(None, [f"min_size={self.min_size}", super().note()]))

    def state_dict(self) -> dict[str, Any]:
        """Counts, and the shards if they are to be saved.

        Raises:
            PlanError: If one has died, and is not to be replaced.
        """
        record = self.record.state_dict(self.save, self.name)
        if self.record.found_dead and (self.failure_rule is None or self.failure_rule.on_error != "replace"):
            dead = Envelope(None, f"{self.name}/{self.record.found_dead[0]}", self.timer.items, UNKNOWN_VERSION)
            lost = ActorLost("found dead when its state was asked for")
            raise failure(self.name, dead, lost) from lost
        return {"sampled": self.sampled, "record": record}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.sampled = int(state["sampled"])
        self.record.load_state_dict(state["record"], self.name)

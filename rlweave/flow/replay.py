"""Operators on replay memories: storing, and the priorities of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, TypeVar

from rlweave.errors import PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.context import Context
from rlweave.flow.engine import Call
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.item_reference import ItemReference
from rlweave.flow.item_types import Signature
from rlweave.flow.operator import Graph, Operator
from rlweave.flow.protocols import Batch, BatchType, Memory, PrioritizedMemory, require, steps_of
from rlweave.flow.replay_shards import ReplayShards, ShardRecord
from rlweave.flow.train_stats import TrainStats

Stored = TypeVar("Stored", bound=Batch | ItemReference[Any])


class StoreToBuffer(Operator):
    """Stores each item into a memory and passes it on.

    Shards of a memory get items in turns. They also take references to items (``gather_async(by_reference=True)``),
    and have the items from where they were made.
    """

    at_source: ClassVar[bool] = False
    may_wait: ClassVar[bool] = True
    state = ("inserted",)

    def __init__(self, memory: Memory | ReplayShards) -> None:
        self.memory = self.fills = memory
        if isinstance(memory, ReplayShards):
            self.sends_to = memory
        else:
            require(memory, Memory, "store_to_buffer", "memory")
        self.inserted = 0
        """Environment steps stored so far."""
        self._shards: ShardRecord | None = None

    def start(self, context: Context) -> None:
        """Finds the shards, if the memory has some."""
        if isinstance(self.memory, ReplayShards):
            self._shards = context.shards(self.memory)
            self.gates.append(self._shards.may_store)

    def signature(self) -> Signature:
        """What goes in comes out."""
        takes = BatchType if self.sends_to is None else Stored
        return Signature(takes, takes)

    def __call__(self, batch: Any) -> Any:
        """Stores the batch."""
        if self._shards is not None:
            self._shards.store(batch, self.name)
        else:
            assert not isinstance(self.memory, ReplayShards)
            self.memory.insert(batch)
        self.inserted += steps_of(batch)
        return batch

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Nothing beside what it stores, which ``fills`` says."""
        return []

    def note(self) -> str:
        """The memory."""
        return f"{len(self.sends_to)} shards" if self.sends_to is not None else type(self.memory).__name__

    def waits_on(self) -> Iterator[Call]:
        """Inserts that shards have not done yet, if the next one has to wait for them."""
        return iter(()) if self._shards is None else self._shards.waits_on()

    def obstacle(self) -> str:
        """Shards that are full of work."""
        if self._shards is not None and not self._shards.may_store():
            return "the actors that it gives items to take no more now"
        return super().obstacle()


class UpdatePriorities(Operator):
    """Gives a memory the priorities that a learner found for the items it trained on; passes the statistics on.

    The slides' Ape-X updates priorities before it trains; here training comes first, because there are no TD errors
    before it.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, memory: PrioritizedMemory | ReplayShards) -> None:
        self.memory = memory
        if isinstance(memory, ReplayShards):
            self.sends_to = memory
        else:
            require(memory, PrioritizedMemory, "update_priorities", "memory")

    def process(self, envelope: Envelope) -> Pulled:
        """Updates the memory: of several shards the one that the item came from, which its envelope knows.

        Raises:
            PlanError: If the item does not come from exactly one of the shards.
        """
        if not isinstance(self.memory, ReplayShards):
            return super().process(envelope)
        channel, index = self._context.worker_of(envelope.origins[0][0]) or (None, 0)
        if channel is not self._context.channel(self.memory) or len(envelope.origins) > 1:
            raise PlanError(
                "priorities go back to the shard that a sample came from, and this item came from no such one",
                where="operator 'update_priorities'",
                received=envelope.describe(),
                fix="train on the items of ParallelReplay(shards) one by one, with the same shards",
            )
        self._context.shards(self.memory).update_priorities(index, *self._priorities(envelope.payload))
        return envelope

    def __call__(self, stats: TrainStats) -> TrainStats:
        """Updates the memory.

        Raises:
            PlanError: If the learner gave no priorities.
        """
        assert not isinstance(self.memory, ReplayShards)
        self.memory.update_priorities(*self._priorities(stats))
        return stats

    def _priorities(self, stats: TrainStats) -> tuple[Any, Any]:
        if stats.priorities is None:
            raise PlanError(
                "the learner gave no priorities",
                where="operator 'update_priorities'",
                received=f"metrics {sorted(stats.metrics)}",
                fix="let Learner.update return 'priorities': (indices, priorities), or use a memory without priorities",
            )
        return stats.priorities

    def check(self, graph: Graph) -> None:
        """The items must have come from this memory: indices into another one mean nothing there."""
        replays = [above for above in graph.ancestors(self) if above.draws_from is not None]
        if replays and all(replay.draws_from is not self.memory for replay in replays):
            raise PlanError(
                f"the priorities of {self.name!r} would go to a memory that its items do not come from",
                where=f"operators {replays[0].name!r} and {self.name!r}",
                received=f"samples of one {type(replays[0].draws_from).__name__}, priorities for "
                f"another {type(self.memory).__name__}",
                fix="give both the same memory object",
            )

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Priorities, at once."""
        return [(self.memory, "priorities", "1", "block")]


class Prioritizing(Protocol):
    """A worker that can say how surprising its items are."""

    def compute_priorities(self, batch: SampleBatch) -> Any:
        """Sizes of the TD errors of all rows of a batch, float32 (N,), by the weights that the worker acts on."""
        ...


class ComputePriorities(Operator):
    """Adds ``"priorities"`` (N,) to each batch, beside the worker that made it: ``par_for_each(ComputePriorities())``.

    So a memory draws new items by what they are worth from the start, and the learner need not look at all of them.
    """

    def bind(self, worker: Any) -> None:
        """Takes the worker.

        Raises:
            PlanError: It cannot compute priorities.
        """
        require(worker, Prioritizing, "compute_priorities", "worker")
        self._worker: Prioritizing = worker

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        """The batch with priorities; one without rows as it is."""
        if not batch.data:
            return batch
        data = {**batch.data, "priorities": self._worker.compute_priorities(batch)}
        return SampleBatch(data, env_steps=batch.num_steps)

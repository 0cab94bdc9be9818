"""Operators of reinforcement learning: training, storing, weights, priorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rlweave.errors import PlanError
from rlweave.flow.counters import Every
from rlweave.flow.engine import Call
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.item_reference import ItemReference
from rlweave.flow.item_types import Signature
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.learner_steps import LearnerSteps
from rlweave.flow.operators import Operator
from rlweave.flow.protocols import (
    Batch,
    BatchType,
    Learner,
    Memory,
    PrioritizedMemory,
    TakesWeights,
    require,
    steps_of,
)
from rlweave.flow.replay_shards import ReplayShards, ShardRecord
from rlweave.flow.train_stats import TrainStats
from rlweave.flow.workers import WorkerGroup, Workers

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.node import Node
    from rlweave.flow.plan_graph import PlanGraph

Item = TypeVar("Item")
Stored = TypeVar("Stored", bound=Batch | ItemReference[Any])


class TrainOneStep(Operator):
    """Trains a learner on each item: one call of its ``update``, which makes one new weight version.

    Args:
        learner: See `rlweave.flow.Learner`; a `LearnerActor` trains in an actor of its own while the driver goes on.
        workers: Workers that act on this learner's weights; each gets the new ones before its next item. Without them,
            let `UpdateWeights` send weights, or nobody.
        publish_every: Updates from one publication of weights to the next.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, learner: Learner | LearnerActor, workers: Workers | None = None, publish_every: int = 1) -> None:
        super().__init__(LearnerSteps("train_one_step", learner, Learner, "update", workers, publish_every))

    def signature(self) -> Signature:
        """Takes batches."""
        return Signature(BatchType, TrainStats)


class StoreToBuffer(Operator):
    """Stores each item into a memory and passes it on.

    Shards of a memory get items in turns. They also take references to items (``gather_async(by_reference=True)``),
    and have the items from where they were made.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, memory: Memory | ReplayShards) -> None:
        self.memory = self.fills = memory
        if isinstance(memory, ReplayShards):
            self.group = memory
        else:
            require(memory, Memory, "store_to_buffer", "memory")
        self.inserted = 0
        """Environment steps stored so far."""
        self._shards: ShardRecord | None = None

    def start(self, context: Context, name: str) -> None:
        """Finds the shards, if the memory has some."""
        self._name = name
        if isinstance(self.memory, ReplayShards):
            self._shards = context.shards(self.memory)
            self.gate = self._shards.may_store

    def signature(self) -> Signature:
        """What goes in comes out."""
        takes = BatchType if self.group is None else Stored
        return Signature(takes, takes)

    def __call__(self, batch: Any) -> Any:
        """Stores the batch."""
        if self._shards is not None:
            self._shards.store(batch, self._name)
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
        return f"{len(self.group)} shards" if self.group is not None else type(self.memory).__name__

    def waits_on(self) -> Iterator[Call]:
        """Inserts that shards have not done yet, if the next one has to wait for them."""
        return iter(()) if self._shards is None else self._shards.waits_on()

    def state_dict(self) -> dict[str, Any]:
        """The number of steps stored. The memory itself is saved by who owns it."""
        return {"inserted": self.inserted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.inserted = int(state["inserted"])


class UpdateWeights(Operator):
    """Gives the worker that made an item the learner's newest weights with its next item; passes the item on.

    Weights are read from the learner once per version, however many workers get them.

    Args:
        learner: Whose weights; one in an actor is trained elsewhere in the plan.
        workers: Who acts on them.
        every_steps: Environment steps of one worker between two times that it gets weights; 0 means with every item.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, learner: Learner | LearnerActor, workers: Workers, every_steps: int = 0) -> None:
        if not isinstance(learner, LearnerActor):
            require(learner, Learner, "update_weights", "learner")
        self.learner = learner
        self.group = self._workers = WorkerGroup.of(workers, "update_weights", TakesWeights)
        self.every_steps = every_steps
        self._every = [Every(every_steps) for _ in range(len(self._workers))]
        self._steps = [0] * len(self._workers)

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def check_plan(self, node: Node, graph: PlanGraph) -> None:
        """A learner in an actor lives as long as who trains it."""
        if isinstance(self.learner, LearnerActor) and not graph.trains(self.learner):
            raise PlanError(
                f"the learner of {node.name!r} does not live in this plan",
                where=f"operator {node.name!r}, argument 'learner'",
                received="a LearnerActor that no operator trains",
                fix="give it the LearnerActor of TrainOneStep",
            )

    def start(self, context: Context, name: str) -> None:
        """Ties the learner to the workers."""
        self._context = context
        self._channel = context.channel(self._workers)
        self._channel.tie(context.learner(self.learner))

    def process(self, envelope: Envelope) -> Pulled:
        """Sends to those who made the item."""
        origins = dict.fromkeys(source for source, _ in envelope.origins)
        steps = steps_of(envelope.payload) // max(1, len(origins))
        for source in origins:
            channel, index = self._context.worker_of(source) or (None, 0)
            if channel is not self._channel:
                continue
            self._steps[index] += steps
            if not self.every_steps or self._every[index](self._steps[index]):
                self._channel.publish(index)
        return envelope

    def note(self) -> str:
        """Settings."""
        return f"every_steps={self.every_steps}" if self.every_steps else ""

    def state_dict(self) -> dict[str, Any]:
        """Steps per worker."""
        return {"steps": list(self._steps), "every": [every.state_dict() for every in self._every]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._steps = [int(steps) for steps in state["steps"]]
        for every, saved in zip(self._every, state["every"], strict=True):
            every.load_state_dict(saved)


class UpdatePriorities(Operator):
    """Gives a memory the priorities that a learner found for the items it trained on; passes the statistics on.

    The slides' Ape-X updates priorities before it trains; here training comes first, because there are no TD errors
    before it.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, memory: PrioritizedMemory | ReplayShards) -> None:
        self.memory = memory
        if isinstance(memory, ReplayShards):
            self.group = memory
        else:
            require(memory, PrioritizedMemory, "update_priorities", "memory")

    def start(self, context: Context, name: str) -> None:
        """Finds the shards, if the memory has some."""
        self._context = context

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

    def check_plan(self, node: Node, graph: PlanGraph) -> None:
        """The items must have come from this memory: indices into another one mean nothing there."""
        replays = [above for above in graph.ancestors(node) if hasattr(above, "memory")]
        if replays and all(replay.memory is not self.memory for replay in replays):
            raise PlanError(
                f"the priorities of {node.name!r} would go to a memory that its items do not come from",
                where=f"operators {replays[0].name!r} and {node.name!r}",
                received=f"samples of one {type(replays[0].memory).__name__}, priorities for "
                f"another {type(self.memory).__name__}",
                fix="give both the same memory object",
            )

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Priorities, at once."""
        return [(self.memory, "priorities", "1", "block")]

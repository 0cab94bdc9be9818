"""Operators of reinforcement learning: training, storing, weights, priorities, messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rlweave.errors import ConfigError, PlanError, nearest
from rlweave.flow.counters import Every
from rlweave.flow.engine import Call
from rlweave.flow.envelope import UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.operators import Operator, positive
from rlweave.flow.protocols import (
    BatchType,
    Learner,
    Memory,
    PrioritizedMemory,
    Worker,
    require,
    steps_of,
)
from rlweave.flow.replay_shards import ReplayShards, ShardRecord
from rlweave.flow.train_stats import TrainStats
from rlweave.flow.weights import WeightChannel
from rlweave.flow.workers import WorkerGroup

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.node import Node
    from rlweave.flow.plan_graph import PlanGraph

Item = TypeVar("Item")
Workers = WorkerGroup | Sequence[Worker]


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
        if isinstance(learner, LearnerActor):
            self.learner_actor = learner
        else:
            require(learner, Learner, "train_one_step", "learner")
        self.learner = learner
        self.group = None if workers is None else WorkerGroup.of(workers, "train_one_step")
        self.publish_every = positive("publish_every", publish_every, "train_one_step")
        self._channel: WeightChannel | None = None

    def __call__(self, batch: BatchType) -> TrainStats:
        """Types only; see ``process``."""
        raise NotImplementedError("TrainOneStep works on envelopes")

    def start(self, context: Context, name: str) -> None:
        """Ties the learner to the workers."""
        self._context = context
        self._record = context.learner(self.learner)
        self.metrics_name = name
        if self.group is not None:
            self._channel = context.channel(self.group)
            self._channel.tie(self._record)

    def process(self, envelope: Envelope) -> Pulled:
        """Trains on the item, counts, and publishes the weights."""
        assert not isinstance(self.learner, LearnerActor)
        self._note_lag(envelope)
        return self._account(envelope, self.learner.update(envelope.payload))

    def begin(self, envelope: Envelope) -> Call:
        """Has the learner's actor train on the item."""
        self._note_lag(envelope)
        self._record.busy = True
        return self._context.engine.call(self._record.actor, "update", envelope.payload)

    def finish(self, envelope: Envelope, result: Mapping[str, Any]) -> Pulled:
        """Counts, and publishes the weights."""
        return self._account(envelope, result)

    def _note_lag(self, envelope: Envelope) -> None:
        context = self._context
        if envelope.weight_version != UNKNOWN_VERSION:
            maker = context.worker_of(envelope.origins[0][0])
            if maker is not None and self._record in maker[0].learners:
                lag = maker[0].lag(envelope.weight_version, envelope.versions, self._record)
                context.note_train_lag(self.metrics_name, lag)

    def _account(self, envelope: Envelope, result: Mapping[str, Any]) -> Envelope:
        context, channel, record = self._context, self._channel, self._record
        metrics = dict(result)
        record.updated()
        stats = TrainStats(
            num_steps=int(metrics.pop("trained_samples", -1)),
            gradient_steps=int(metrics.pop("gradient_steps", 1)),
            version=record.updates,
            priorities=metrics.pop("priorities", None),
            metrics=metrics,
        )
        if stats.num_steps < 0:
            stats.num_steps = steps_of(envelope.payload)
        counters = context.counters
        counters.trained_samples += stats.num_steps
        counters.gradient_steps += stats.gradient_steps
        counters.updates += 1
        context.metrics.add(self.metrics_name, metrics)
        if channel is not None and record.updates % self.publish_every == 0:
            channel.publish_to_all()
            record.offer()
        return envelope.carrying(stats)

    def note(self) -> str:
        """The learner."""
        every = f" after every {self.publish_every} updates" if self.publish_every > 1 else ""
        receivers = "nobody" if self.group is None else f"{len(self.group)} workers"
        name = "learner" if isinstance(self.learner, LearnerActor) else type(self.learner).__name__
        return f"{name}, sends weights to {receivers}{every}"

    def state_dict(self) -> dict[str, Any]:
        """The weight version. The learner itself is saved by who owns it."""
        return {"updates": self._record.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._record.updates = int(state["updates"])


class StoreToBuffer(Operator):
    """Stores each item into a memory and passes it on. Shards of a memory get items in turns."""

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
        if isinstance(self.memory, ReplayShards):
            self._shards = context.shards(self.memory)
            self.gate = self._shards.may_store

    def __call__(self, batch: BatchType) -> BatchType:
        """Stores the batch."""
        if self._shards is not None:
            self._shards.store(batch)
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
        learner: Whose weights.
        workers: Who acts on them.
        every_steps: Environment steps of one worker between two times that it gets weights; 0 means with every item.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, learner: Learner, workers: Workers, every_steps: int = 0) -> None:
        require(learner, Learner, "update_weights", "learner")
        self.learner = learner
        self.group = self._workers = WorkerGroup.of(workers, "update_weights")
        self.every_steps = every_steps
        self._every = [Every(every_steps) for _ in range(len(self._workers))]
        self._steps = [0] * len(self._workers)

    def __call__(self, item: Item) -> Item:
        """Types only; see ``process``."""
        raise NotImplementedError("UpdateWeights works on envelopes")

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


class Notify(Operator):
    """Sends a message upstream for every n-th item, and passes the item on. Behind ``Stream.notify``.

    The receiver's method is called as ``method(message, version)``, where version is the number of learner updates
    so far. Workers that are busy elsewhere get the newest messages; those that are left out count as drops.
    """

    at_source: ClassVar[bool] = False

    def __init__(
        self,
        target: Any,
        method: str,
        every: int = 1,
        message: Callable[[Any], Any] | None = None,
        capacity: int = 8,
    ) -> None:
        self.target, self.method, self.message = target, method, message
        self.group = target if isinstance(target, WorkerGroup) else None
        self.every = positive("every", every, "notify")
        self.capacity = positive("capacity", capacity, "notify")
        self._seen = 0
        known = list(target.kinds()) if isinstance(target, WorkerGroup) else [target]
        for kind in known:
            if kind is not Any and not callable(getattr(kind, method, None)):
                owner = kind if isinstance(kind, type) else type(kind)
                raise PlanError(
                    f"notify() names a method that {owner.__name__} lacks",
                    where="operator 'notify'",
                    received=f"{method!r}",
                    fix=nearest(method, [name for name in dir(owner) if not name.startswith("_")]),
                )

    def __call__(self, item: Item) -> Item:
        """Sends the message if it is time."""
        self._seen += 1
        if self._seen % self.every == 0:
            self._send(item if self.message is None else self.message(item))
        return item

    def start(self, context: Context, name: str) -> None:
        """Finds the actors."""
        self._context, self._name = context, name
        if isinstance(self.target, WorkerGroup):
            self._channel = context.channel(self.target)

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Its messages; an object of this process gets each at once."""
        edge = (str(self.capacity), "drop_oldest") if self.group is not None else ("1", "block")
        return [(self.target, self.method, *edge)]

    def _send(self, message: Any) -> None:
        version = self._context.version()
        if isinstance(self.target, WorkerGroup):
            for _ in range(self._channel.tell_all(self.method, message, version, self.capacity)):
                self._context.counters.drop(self._name)
        else:
            getattr(self.target, self.method)(message, version)

    def note(self) -> str:
        """Whom, and how often."""
        receiver = "workers" if isinstance(self.target, WorkerGroup) else type(self.target).__name__
        return f"{receiver}.{self.method}, every={self.every}"

    def state_dict(self) -> dict[str, Any]:
        """Items seen."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._seen = int(state["seen"])


def receiver_of(node: Any) -> Any:
    """What ``notify`` reaches through a stream: the workers or the memory at its beginning.

    Raises:
        ConfigError: If the stream begins at several places, or at something that takes no messages.
    """
    while len(node.inputs) == 1:
        node = node.inputs[0].node
    target = getattr(node, "group", None) or getattr(node, "memory", None)
    if target is None:
        raise ConfigError(
            "notify() needs a stream with one beginning",
            where=f"operator {node.name!r}",
            received=f"{len(node.inputs)} inputs",
            fix="give the stream of one ParallelRollouts or Replay, a group of workers, or an object",
        )
    return target

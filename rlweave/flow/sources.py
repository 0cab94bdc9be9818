"""Operators at the beginning of streams: workers, memories, and memories in shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rlweave.errors import PlanError
from rlweave.flow.context import Context
from rlweave.flow.counters import Counters
from rlweave.flow.engine import ActorLost
from rlweave.flow.envelope import END, NOT_READY, UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.item_types import one_of, positive, signature_of
from rlweave.flow.operator import Graph, Operator, Port
from rlweave.flow.plan_errors import failure
from rlweave.flow.protocols import Memory, require, steps_of
from rlweave.flow.shards import ReplayShards, ShardRecord
from rlweave.flow.supervision import FailureRule
from rlweave.flow.workers import Answer, WorkerGroup


class RolloutSource(Operator):
    """The workers of a group as a parallel stream. Items stay at their workers until a gather fetches them.

    Args:
        group: The workers.
        fragments: Items that a worker makes per call.
        name: Of the operator.
        counts: Whether its steps and episodes are those of the training.
    """

    state: ClassVar[tuple[str, ...]] = ("_waits", "_answers")
    on_error_choices = ("stop", "skip", "replace")
    runs_at = "sources"
    in_rounds = True
    """Whether one item of each source makes a round."""
    always_asked = True
    """Whether its actors may be asked for an item at any time, without a call of ``asked``; not those that wait for
    answers."""
    watched_by_others = False
    """Whether operators other than the gather may find an actor dead."""

    def __init__(
        self, group: WorkerGroup, fragments: int = 1, name: str = "parallel_rollouts", counts: bool = True
    ) -> None:
        self.enter([], name)
        self.group: WorkerGroup = group
        self.counts = counts
        self.fragments = positive("fragments", fragments, name)
        self.outputs = [Port(self, 0, one_of(group.item_types()), parallel=True)]
        self._waits = [False] * len(group)
        """Of each actor that gets answers: whether one to its last item, or to the one it makes, is still to come."""
        self._answers: list[Answer | None] = [None] * len(group)

    # -- answers to its actors --------------------------------------------------------------------------------------

    def await_answers(self) -> None:
        """From now on, an actor is asked for its next item only once the last one has been answered."""
        self.always_asked = False

    def answer(self, index: int, answer: Answer) -> None:
        """Gives an actor an answer with the request for its next item."""
        self._waits[index], self._answers[index] = False, answer

    def expect_no_answer(self, index: int) -> None:
        """Notes that an actor's item was lost, so that nobody will answer it."""
        self._waits[index], self._answers[index] = False, None

    def waiting(self) -> int:
        """Actors that make an item which is to be answered, or wait for the answer."""
        return sum(self._waits)

    # -- called by a gather: workers that get no answers may always be asked ---------------------------------------

    def may_ask(self, index: int) -> bool:
        """Whether a source may be asked for an item now."""
        return not self._waits[index]

    def asked(self, index: int) -> tuple[Any, ...]:
        """Notes that an item is being requested; returns what the request brings along beside weights."""
        answer, self._answers[index], self._waits[index] = self._answers[index], None, True
        return () if answer is None else (answer,)

    def lost(self, items: int) -> None:
        """Notes that requested items will not come."""

    def count(self, counters: Counters, num_steps: int) -> None:
        """Counts the environment steps of an item, if it counts as training."""
        if self.counts:
            counters.env_steps_sampled += num_steps

    def exhausted(self) -> bool:
        """Whether sources that may not be asked now may never be asked again."""
        return False

    def take_dead(self) -> list[int]:
        """Actors that other operators found dead."""
        return []

    def stopped(self, index: int) -> None:
        """Notes that an actor is lost."""

    def started(self, index: int) -> None:
        """Notes that an actor was restarted."""

    def obstacle(self) -> str:
        """The actors that wait for an answer."""
        waiting = [str(index) for index, waits in enumerate(self._waits) if waits]
        return f"{', '.join(waiting)} of {self.name!r} were not answered" if waiting else ""

    def placement(self) -> str:
        """The number of actors."""
        return f"{len(self.group)} actors" if len(self.group) > 1 else "1 actor"

    def note(self) -> str:
        """Settings."""
        fragments = f"fragments={self.fragments}" if self.fragments > 1 else ""
        counts = "" if self.counts else "counts=False"
        return ", ".join(filter(None, [fragments, counts]))

    def check(self, graph: Graph) -> None:
        """A group of workers is the source of one stream only; only workers made by a factory can be restarted."""
        if self.failure_rule is not None and self.failure_rule.on_error == "replace" and self.group.exists():
            raise PlanError(
                f"the workers of {self.name!r} cannot be restarted",
                where=f"operator {self.name!r}, on_error('replace')",
                received=f"{len(self.group)} worker objects",
                fix="give ParallelRollouts a WorkerGroup of factories",
            )
        for other in graph.nodes:
            if isinstance(other, RolloutSource) and other.order > self.order and other.group.key == self.group.key:
                raise PlanError(
                    "the same workers are the source of two streams",
                    where=f"operators {self.name!r} and {other.name!r}",
                    received=f"one group of {len(self.group)} workers in both",
                    fix="make one ParallelRollouts and split() its stream",
                )


class ReplaySource(Operator):
    """Samples from a memory; not ready while the memory cannot serve a batch.

    The stream ends when everything that stores into the memory has ended; a memory that the plan never stores into
    (an offline data set) has no end.
    """

    state = ("_items", "sampled", "_last_size")
    on_error_choices = ()

    def __init__(self, memory: Memory, min_size: int) -> None:
        require(memory, Memory, "replay", "memory")
        self.enter([], "replay")
        self.memory: Memory = memory
        self.draws_from = memory
        self.min_size = positive("min_size", min_size, self.name)
        self.outputs = [Port(self, 0, signature_of(memory.sample).gives)]
        self.stores: list[Operator] = []
        self.limited = False
        self.sampled = 0
        """Samples served so far."""
        self._items = 0
        self._last_size = 1

    def check(self, graph: Graph) -> None:
        """The memory must be able to fill."""
        filled = self.memory.ready(self.min_size)
        where = f"memory {type(self.memory).__name__}"
        self.stores = _stores_of(
            self, graph, where, "StoreToBuffer(memory) with this very memory", ", and it is not filled already", filled
        )

    def exhausted(self) -> bool:
        """Whether no more data will come."""
        return bool(self.stores) and all(store.ended for store in self.stores)

    def ready(self) -> bool:
        """Whether the memory can serve a batch."""
        return bool(self.memory.ready(self.min_size))

    def next_size(self) -> int:
        """Samples that the next item will have, as far as is known."""
        declared = getattr(self.memory, "batch_size", None)
        return int(declared) if declared is not None else self._last_size

    def pull(self, output: int = 0) -> Pulled:
        """One sampled batch."""
        exhausted = not self.limited and self.exhausted()
        if exhausted or not self.ready():
            self.ended = exhausted or self.exhausted()
            return END if self.ended else NOT_READY
        started = self._now()
        envelope = Envelope(None, self.name, self._items, UNKNOWN_VERSION)
        try:
            batch = self.memory.sample()
        except Exception as error:
            raise failure(self.name, envelope, error) from error
        self._last_size = steps_of(batch)
        self.sampled += self._last_size
        self._items += 1
        self.timer.items += 1
        self.timer.seconds += self._now() - started
        return envelope.carrying(batch)

    def obstacle(self) -> str:
        """A memory that is not filled enough."""
        return "" if self.ready() else f"the memory cannot serve a batch yet (min_size {self.min_size})"

    def note(self) -> str:
        """The memory and its minimum."""
        return f"{type(self.memory).__name__}, min_size={self.min_size}"


class ShardSource(RolloutSource):
    """The shards of a memory as sources. A shard is asked for samples when it holds its share of ``min_size``.

    Behind a rate limiter, samples count as taken when they are requested: the limiter holds back the requests, so that
    batches may be under way while others are trained on, and the replay ratio is exact nevertheless.

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
        """A rate limiter's answer whether another sample may be taken."""
        self.sampled = 0
        """Samples requested so far, without lost ones."""
        self._record: ShardRecord | None = None

    def check(self, graph: Graph) -> None:
        """The memory must be able to fill."""
        super().check(graph)
        self.stores = _stores_of(
            self, graph, f"memory of {len(self.memory)} shards", "StoreToBuffer with these very shards"
        )

    def start(self, context: Context) -> None:
        """Finds the shards."""
        self._record = context.shards(self.memory)

    @property
    def record(self) -> ShardRecord:
        """The plan's record of the shards."""
        assert self._record is not None
        return self._record

    # -- called by a gather --------------------------------------------------------------------------------------

    def may_ask(self, index: int) -> bool:
        """Whether a shard may be asked for a sample now."""
        if self.exhausted() or not self.holds_share(index):
            return False
        return self.permit is None or not self.limited or self.permit()

    def asked(self, index: int) -> tuple[Any, ...]:
        """Counts the batches of a call."""
        self.sampled += self.next_size()
        return ()

    def lost(self, items: int) -> None:
        """Takes back batches that will not come."""
        self.sampled -= items * self.memory.batch_size

    def count(self, counters: Counters, num_steps: int) -> None:
        """Counts nothing: samples are no environment steps."""
        self.sampled += num_steps - self.memory.batch_size

    def exhausted(self) -> bool:
        """Whether no more data will come."""
        return not self.limited and all(store.ended for store in self.stores)

    def take_dead(self) -> list[int]:
        """Shards that were found dead, or hanging, by operators that sent them something."""
        return self.record.take_dead((self.failure_rule or FailureRule()).timeout)

    def stopped(self, index: int) -> None:
        """Notes that a shard is lost."""
        self.record.stop(index)

    def started(self, index: int) -> None:
        """Notes that a shard was restarted, empty."""
        self.record.started(index)

    # -- called by a rate limiter --------------------------------------------------------------------------------

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

    # -- reports ------------------------------------------------------------------------------------------------

    def measures(self) -> dict[str, float]:
        """Environment steps in the shards and lost with shards, and priorities that came too late."""
        record = self.record
        held = sum(map(record.held, range(len(self.memory))))
        return {"held_steps": held, "lost_steps": record.lost_steps, "late_priorities": record.late_priorities}

    def obstacle(self) -> str:
        """The shards that do not hold enough."""
        return "" if self.ready() else f"no shard holds its share of min_size {self.min_size} yet"

    def placement(self) -> str:
        """The number of actors."""
        return f"{len(self.memory)} shards"

    def note(self) -> str:
        """Settings."""
        return ", ".join(filter(None, [f"min_size={self.min_size}", super().note()]))

    def state_dict(self) -> dict[str, Any]:
        """Counts, and the shards if they are to be saved.

        Raises:
            PlanError: If a shard is dead, and is not to be restarted.
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


def _stores_of(
    source: ReplaySource | ShardSource, graph: Graph, where: str, store: str, but: str = "", filled: bool = False
) -> list[Operator]:
    """The operators that store into a source's memory.

    Raises:
        PlanError: The memory can never fill.
    """
    stores = graph.stores_into(source.memory)
    capacity = getattr(source.memory, "capacity", None)
    problem, fix = "", f"give the plan a branch that ends in {store}"
    if capacity is not None and source.min_size > capacity:
        problem = f"min_size {source.min_size} is above the memory's capacity {capacity}"
        fix = "lower min_size, or use a larger memory"
    elif not filled and not stores:
        problem = f"nothing in the plan stores into it{but}"
    elif not filled and all(source in graph.ancestors(store) for store in stores):
        names = ", ".join(repr(store.name) for store in stores)
        problem = f"only {names} stores into it, which itself waits for its samples"
    if problem:
        raise PlanError(
            f"the memory of {source.name!r} can never fill",
            where=f"operator {source.name!r}, {where}",
            received=problem,
            fix=fix,
        )
    return stores

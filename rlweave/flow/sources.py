"""Operators at the beginning of streams: workers and memories."""

from __future__ import annotations

from rlweave.errors import PlanError
from rlweave.flow.counters import Counters
from rlweave.flow.envelope import END, NOT_READY, UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.item_types import one_of, positive, signature_of
from rlweave.flow.operator import Graph, Operator, Port
from rlweave.flow.plan_errors import failure
from rlweave.flow.protocols import Memory, require, steps_of
from rlweave.flow.workers import WorkerGroup


class RolloutSource(Operator):
    """The workers of a group as a parallel stream. Items stay where they are made until a gather fetches them.

    Args:
        group: The workers.
        fragments: Items that a worker makes per call.
        name: Of the operator.
        counts: Whether its steps and episodes are those of the training.
    """

    on_error_choices = ("stop", "skip", "replace")
    runs_at = "sources"
    in_rounds = True
    """Whether one item of each source makes a round."""
    always_asked = True
    """Whether its actors may be asked for an item at any time, and it need not hear of it."""
    watched_by_others = False
    """Whether others than the gather may find an actor dead."""

    def __init__(
        self, group: WorkerGroup, fragments: int = 1, name: str = "parallel_rollouts", counts: bool = True
    ) -> None:
        self.enter([], name)
        self.group: WorkerGroup = group
        self.counts = counts
        self.fragments = positive("fragments", fragments, name)
        self.outputs = [Port(self, 0, one_of(group.item_types()), parallel=True)]

    # -- what a gather asks: workers may always be asked ----------------------------------------------------------

    def may_ask(self, index: int) -> bool:
        """Whether a source may be asked for an item now."""
        return True

    def asked(self) -> None:
        """Hears that an item was asked for."""

    def lost(self, items: int) -> None:
        """Hears that items which were asked for will not come."""

    def count(self, counters: Counters, num_steps: int) -> None:
        """Counts what an item took, if it is of the training."""
        if self.counts:
            counters.env_steps_sampled += num_steps

    def exhausted(self) -> bool:
        """Whether sources that may not be asked now never will be."""
        return False

    def take_dead(self) -> list[int]:
        """Actors that were found dead by others than the gather."""
        return []

    def stopped(self, index: int) -> None:
        """Hears that an actor is gone."""

    def started(self, index: int) -> None:
        """Hears that a new actor is in its place."""

    def placement(self) -> str:
        """How many actors."""
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
        self.stores = graph.stores_into(self.memory)
        capacity = getattr(self.memory, "capacity", None)
        problem, fix = "", ""
        if capacity is not None and self.min_size > capacity:
            problem = f"min_size {self.min_size} is above the memory's capacity {capacity}"
            fix = "lower min_size, or use a larger memory"
        elif not self.memory.ready(self.min_size):
            fix = "give the plan a branch that ends in StoreToBuffer(memory) with this very memory"
            if not self.stores:
                problem = "nothing in the plan stores into it, and it is not filled already"
            elif all(self in graph.ancestors(store) for store in self.stores):
                names = ", ".join(repr(store.name) for store in self.stores)
                problem = f"only {names} stores into it, which itself waits for its samples"
        if problem:
            raise PlanError(
                f"the memory of {self.name!r} can never fill",
                where=f"operator {self.name!r}, memory {type(self.memory).__name__}",
                received=problem,
                fix=fix,
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

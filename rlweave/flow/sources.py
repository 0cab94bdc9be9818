"""Nodes at the beginning of streams: workers, what runs beside them, and memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlweave.errors import CheckpointError, PlanError
from rlweave.flow.counters import Counters
from rlweave.flow.envelope import END, NOT_READY, UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.item_types import fits, one_of, signature_of
from rlweave.flow.node import Node, Port, failure, wrong_type
from rlweave.flow.operators import Operator, positive
from rlweave.flow.protocols import Memory, require, steps_of
from rlweave.flow.transforms import claim
from rlweave.flow.workers import WorkerGroup

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.plan_graph import PlanGraph


class RolloutSource(Node):
    """The workers of a group as a parallel stream. Items stay where they are made until a gather fetches them.

    Args:
        group: The workers.
        fragments: Items that a worker makes per call.
        name: Of the operator.
        counts: Whether its steps and episodes are those of the training.
    """

    on_error_choices = ("stop", "skip", "replace")
    place = "sources"
    in_rounds = True
    """Whether one item of each source makes a round."""
    always_asked = True
    """Whether its actors may be asked for an item at any time, and it need not hear of it."""
    watched_by_others = False
    """Whether others than the gather may find an actor dead."""

    def __init__(
        self, group: WorkerGroup, fragments: int = 1, name: str = "parallel_rollouts", counts: bool = True
    ) -> None:
        super().__init__(name, [])
        self.group, self.counts = group, counts
        self.fragments = positive("fragments", fragments, self.name)
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

    def buried(self, index: int) -> None:
        """Hears that an actor is gone."""

    def born(self, index: int) -> None:
        """Hears that a new actor is in its place."""

    def placement(self) -> str:
        """How many actors."""
        return f"{len(self.group)} actors" if len(self.group) > 1 else "1 actor"

    def note(self) -> str:
        """Settings."""
        fragments = f"fragments={self.fragments}" if self.fragments > 1 else ""
        counts = "" if self.counts else "counts=False"
        return ", ".join(filter(None, [fragments, counts, self.failure_rule.note() if self.failure_rule else ""]))

    def check(self, graph: PlanGraph) -> None:
        """A group of workers is the source of one stream only; only workers made by a factory can be made anew."""
        if self.failure_rule is not None and self.failure_rule.on_error == "replace" and self.group.exists():
            raise PlanError(
                f"the workers of {self.name!r} cannot be made anew",
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


class ParForEach(Node):
    """An operator that runs beside each worker, in a copy of its own.

    The state of each copy is in checkpoints, and goes back to the same worker's. A worker that is made anew after a
    failure begins with a new copy, whose state went down with the old one.
    """

    on_error_choices = ("stop", "skip", "replace")
    place = "sources"

    def __init__(self, upstream: Port, operator: Operator) -> None:
        super().__init__(operator.default_name(), [upstream])
        self.operator = operator
        self.takes = operator.signature().takes
        if not upstream.parallel:
            raise PlanError(
                f"par_for_each({self.name!r}) needs a parallel stream",
                where=f"operators {upstream.node.name!r} and {self.name!r}",
                received=f"{upstream.describe()}, gathered already",
                fix="use for_each, or call par_for_each before the gather",
            )
        if operator.at_source and operator.works_on_envelopes():
            raise PlanError(
                f"{self.name!r} cannot run at the workers",
                where=f"operators {upstream.node.name!r} and {self.name!r}",
                received=f"{type(operator).__name__}, which keeps items back or works on envelopes: at the workers an "
                "operator makes one item of one item",
                fix="gather first, then use for_each",
            )
        if not operator.at_source:
            raise PlanError(
                f"{self.name!r} cannot run at the workers",
                where=f"operators {upstream.node.name!r} and {self.name!r}",
                received=f"{type(operator).__name__}, which works on objects of the driver",
                fix="gather first, then use for_each",
            )
        if not fits(upstream.item_type, self.takes):
            raise wrong_type(upstream, self.name, self.takes)
        operator.check(self)
        claim(operator, self)
        self.connect()
        self.outputs = [Port(self, 0, operator.produced(upstream.item_type), parallel=True)]

    def start(self, context: Context) -> None:
        """Finds the workers, for checkpoints."""
        source: Node = self
        while isinstance(source, ParForEach):
            source = source.inputs[0].node
        assert isinstance(source, RolloutSource)
        self._context, self._group, self._source = context, source.group, source.name

    def state_dict(self) -> dict[str, Any]:
        """The state of the operator at each worker; None for a worker that is gone. Nobody is asked if it has none."""
        if type(self.operator).state_dict is Operator.state_dict:
            return {}
        names: list[tuple[Any, ...]] = [(self.name,)] * len(self._group)
        return {"at_workers": self._context.ask_living(self._group, "stage_state", names, self.name, self._source)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gives each worker's copy its state. The first checkpoints have none: then they begin anew.

        Raises:
            CheckpointError: It is that of another number of workers.
        """
        saved = state.get("at_workers")
        if saved is None:
            return
        check_workers(len(saved), len(self._group), self.name)
        arguments = [None if kept is None else (self.name, kept) for kept in saved]
        self._context.ask_living(self._group, "load_stage_state", arguments, self.name, self._source)

    def placement(self) -> str:
        """Beside each worker."""
        return "at the actors"

    def note(self) -> str:
        """The operator's settings."""
        return self.operator.note()


def check_workers(saved: int, here: int, operator: str) -> None:
    """Refuses the state of another number of workers.

    Raises:
        CheckpointError: If it is of more or fewer.
    """
    if saved != here:
        raise CheckpointError(
            "the checkpoint is of another number of workers",
            where=f"operator {operator!r}",
            received=f"the state of {saved} workers, for {here}",
            fix=f"go on with {saved} workers, or begin a new run",
        )


class ReplaySource(Node):
    """Samples from a memory; not ready while the memory cannot serve a batch.

    The stream ends when everything that stores into the memory has ended; a memory that the plan never stores into
    (an offline data set) has no end.
    """

    def __init__(self, memory: Memory, min_size: int) -> None:
        super().__init__("replay", [])
        require(memory, Memory, self.name, "memory")
        self.memory = memory
        self.min_size = positive("min_size", min_size, self.name)
        self.outputs = [Port(self, 0, signature_of(memory.sample).gives)]
        self.stores: list[Node] = []
        self.limited = False
        self.sampled = 0
        """Samples served so far."""
        self._items = 0
        self._last_size = 1

    def check(self, graph: PlanGraph) -> None:
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

    def start(self, context: Context) -> None:
        """Binds the clock."""
        self._now: Callable[[], float] = context.clock.now

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

    def state_dict(self) -> dict[str, Any]:
        """Counts. The memory itself is saved by who owns it."""
        return {"items": self._items, "sampled": self.sampled, "last_size": self._last_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._items, self.sampled = int(state["items"]), int(state["sampled"])
        self._last_size = int(state["last_size"])

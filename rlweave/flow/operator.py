"""``Operator``: the one kind of node in a plan's graph, and the rules by which outputs meet inputs."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from rlweave.flow.codec import load_state, state_of
from rlweave.flow.context import Context
from rlweave.flow.counters import Timer
from rlweave.flow.engine import Call
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled, Signal
from rlweave.flow.item_types import Signature, check_type, fits, signature_of, snake_case, type_name
from rlweave.flow.learner import LearnerActor
from rlweave.flow.plan_errors import (
    check_names,
    does_not_fit,
    failure,
    gathered_already,
    items_used_twice,
    no_metrics,
    not_at_workers,
    not_gathered,
    used_twice,
)
from rlweave.flow.protocols import Learner
from rlweave.flow.supervision import FailureRule
from rlweave.flow.workers import WorkerGroup

RunsAt = Literal["sources", "driver", "learner", "elsewhere"]
"""Where an operator runs: beside the workers, in the driver's process, in a learner's actor, or out of the plan."""


class Port:
    """One output of an operator. It has at most one consumer; `Stream.split` makes several outputs of it.

    Attributes:
        node: The operator it belongs to.
        index: Its number among that operator's outputs.
        item_type: Type of the items that come out.
        parallel: Whether the items still live at several sources, so that a gather is needed.
        capacity: Items that the edge out of it can hold.
        when_full: What happens when that is full.
        consumer: The operator that takes the items, once there is one.
    """

    def __init__(
        self,
        node: Operator,
        index: int,
        item_type: Any,
        parallel: bool = False,
        capacity: int = 1,
        when_full: str = "block",
    ) -> None:
        self.node, self.index, self.item_type, self.parallel = node, index, item_type, parallel
        self.capacity, self.when_full = capacity, when_full
        self.consumer: Operator | None = None

    def describe(self) -> str:
        """Name of the operator, number of the output where there are several, and the item type."""
        which = f" output {self.index}" if len(self.node.outputs) > 1 else ""
        return f"{self.node.name!r}{which}, which gives {type_name(self.item_type)}"


class Graph(Protocol):
    """What an operator may ask about the whole plan; `PlanGraph` answers."""

    nodes: list[Operator]

    def source_of(self, group: WorkerGroup) -> Any:
        """The source whose actors are the workers of a group."""
        ...

    def ancestors(self, node: Operator) -> set[Operator]:
        """All operators whose items can reach it."""
        ...

    def stores_into(self, memory: Any) -> list[Operator]:
        """All operators that store into a memory."""
        ...

    def learners_behind(self, node: Operator) -> list[Learner | LearnerActor]:
        """The learners that train on items which have come through it, each once."""
        ...

    def max_lags_above(self, node: Operator) -> list[tuple[WorkerGroup, int]]:
        """The workers whose items come to it with a bound on their lag, with that bound."""
        ...

    def trains(self, learner: Learner | LearnerActor) -> bool:
        """Whether an operator of the plan trains a learner."""
        ...


_creation = itertools.count()

_OF_ITS_PLACE = {
    *("inputs", "outputs", "gates", "takes", "take", "beside", "add_metrics", "timer"),
    *("_gives", "_right", "flushed", "_context", "_counters", "_now", "_pullers"),
}
"""Attributes that belong to an operator's place in a plan; copies that run beside workers do not take them along."""

_TAKEN = {*_OF_ITS_PLACE, "name", "base_name", "order", "ended", "failure_rule"} - {"takes"}
"""Attributes that a subclass must not set, beside those that hide a method."""


class Operator:
    """One operator of a plan. Any callable will do in ``for_each`` and ``par_for_each``, too, if it needs no more.

    A subclass overrides one of three methods:

    * ``__call__`` makes a payload of a payload. Its annotations are the item types that the plan checks::

          class ScaleRewards(Operator):
              def __call__(self, batch: SampleBatch) -> SampleBatch: ...

      It may return ``ABSORBED``: nothing comes out for this item.
    * ``process`` does the same with envelopes, which say where an item comes from; ``signature`` has the item types.
    * ``pull`` takes items from upstream by itself, any number of them, as gathers, unions and queues do.

    ``state = ("seen",)`` names the attributes that checkpoints keep. `report` adds numbers to the plan's reports. An
    operator belongs to one plan; until it joins it, it has no name or inputs. Do not reuse the attribute names below.

    Attributes:
        name: Unique name, final once the plan is made.
        order: Number in order of creation; inputs exist before their consumer, so this order is topological.
        inputs: Outputs of others that it takes items from.
        outputs: Its own outputs.
        timer: Items worked on and seconds taken, upstream not included.
        take: Takes the next item of its (first) input, once the plan runs.
        gates: All must be open before it takes another item (a rate limiter holds back inserts by one).
    """

    # -- what a subclass declares -------------------------------------------------------------------------------

    state: ClassVar[tuple[str, ...]] = ()
    """Names of attributes saved in checkpoints: items, arrays, JSON values, and objects with a state of their own.

    Set them all in ``__init__``.
    """
    at_source: ClassVar[bool] = True
    """Whether it may run at the workers; false where it refers to objects of the driver."""
    merges: ClassVar[bool] = False
    """Whether it merges several items into one: it may absorb many before one comes out, which belongs to no round."""
    may_wait: ClassVar[bool] = False
    """Whether it has ``waits_on`` or ``wakes_at``."""
    on_error_choices: tuple[str, ...] = ("stop", "skip")
    """The rules that ``on_error`` may set for it; none for an operator that cannot fail on an item."""
    runs_at: RunsAt = "driver"
    in_flight: int = 1
    """Items that the edge into it can hold."""
    takes: Any = Any
    pieces: int = 1
    """Of how many pieces an item is that it makes at a worker, see `Pieces`."""

    # -- what it refers to --------------------------------------------------------------------------------------

    group: WorkerGroup | None = None
    """The workers or shards that make its items, if it is a source."""
    draws_from: Any = None
    """The memory that it samples, if any."""
    fills: Any = None
    """The memory that it stores into, if any."""
    trains: Learner | LearnerActor | None = None
    """The learner that works on its items, if any."""
    sends_to: WorkerGroup | None = None
    """The workers that it sends something to, if any."""

    # -- its place in a plan ------------------------------------------------------------------------------------

    name = ""
    named_by_user = False
    ended = False
    """Whether it has answered END."""
    failure_rule: FailureRule | None = None
    """What becomes of the plan when it fails; None stops it."""
    beside: Operator | None = None
    """The source beside whose workers copies of it run, by ``par_for_each``."""
    add_metrics: Callable[[Mapping[str, Any]], None] | None = None
    """Takes metrics of this operator; set where it stands in a plan that runs, behind a gather."""
    _entered = False
    _failures_in_a_row = 0

    def __getstate__(self) -> dict[str, Any]:
        """What a copy beside a worker takes along: everything but its place in the plan."""
        return {name: value for name, value in self.__dict__.items() if name not in _OF_ITS_PLACE}

    def default_name(self) -> str:
        """Its name in a plan unless the user gives one."""
        return snake_case(type(self).__name__)

    def enter(self, inputs: Sequence[Port], name: str) -> None:
        """Puts it into a plan, as the consumer of its inputs; to be called after all checks.

        Raises:
            PlanError: If it has a place already (its buffers and counters belong to one stream), or has set attributes
                that are the plan's; if an input has a consumer already, or is listed twice.
        """
        if self._entered:
            raise used_twice(self.name, name, type(self).__name__)
        check_names(name, self, _TAKEN, Operator)
        self._entered = True
        self.base_name = self.name = name
        self.order = next(_creation)
        self.inputs, self.timer = list(inputs), Timer()
        self.outputs: list[Port] = []
        self.gates: list[Callable[[], bool]] = []
        self.flushed: deque[Envelope] = deque()
        """Items that were released at the end of the stream and not taken yet."""
        self._right: set[type] | None = None
        """Types of results that passed the check; None if no type is declared."""
        for port in self.inputs:
            if port.consumer is not None:
                raise items_used_twice(port.node.name, port.describe(), port.consumer.name, self.name)
            port.consumer = self

    def behind(self, upstream: Port, at_workers: bool = False) -> Port:
        """Puts every item of an output through it, here or in a copy of its own beside each worker.

        Returns:
            Its own output.

        Raises:
            PlanError: If items do not fit, or it cannot run there.
        """
        name, signature = self.default_name(), self.signature()
        if at_workers and not upstream.parallel:
            raise gathered_already(upstream.node.name, upstream.describe(), name)
        if at_workers and not (self.at_source and self.works_on_payloads()):
            raise not_at_workers(upstream.node.name, name, type(self).__name__, self.at_source)
        check_input(upstream, name, signature.takes, parallel=at_workers)
        self.check_place(upstream, at_workers)
        self.enter([upstream], name)
        self.takes, self._gives = signature.takes, signature.gives
        if at_workers:
            self.beside, self.runs_at = upstream.node.beside or upstream.node, "sources"
            self.on_error_choices = (*self.on_error_choices, "replace")
        elif self._gives is not Any and not isinstance(self._gives, TypeVar):
            self._right = {Signal}
        self.outputs = [Port(self, 0, self.produced(upstream.item_type), at_workers)]
        return self.outputs[0]

    # -- checks -------------------------------------------------------------------------------------------------

    def works_on_payloads(self) -> bool:
        """Whether it makes one payload of one payload, so that it may run beside workers."""
        kind = type(self)
        return kind.__call__ is not Operator.__call__ and kind.flush is Operator.flush

    def signature(self) -> Signature:
        """Item types that it takes and gives."""
        return signature_of(self)

    def produced(self, received: Any) -> Any:
        """Type of the items that come out when items of type ``received`` go in."""
        return self.signature().produced(received)

    def check_place(self, upstream: Port, at_workers: bool) -> None:
        """Raises PlanError if it cannot stand at this place: behind this output, or beside workers."""

    def check(self, graph: Graph) -> None:
        """Raises PlanError for mistakes that only the whole plan shows."""

    # -- running ------------------------------------------------------------------------------------------------

    def prepare(self, context: Context) -> None:
        """Declares what actors need when they are made; called once, before any actor exists."""

    def open(self, context: Context) -> None:
        """Looks up what every item needs (actors, channels, counters); called once, sources first."""
        self._context, self._counters, self._now = context, context.counters, context.clock.now
        self._pullers = [_puller(port) for port in self.inputs]
        self.take: Callable[[], Pulled] = self._pullers[0] if self._pullers else lambda: END
        if self.beside is None:
            self.add_metrics = partial(context.metrics.add, self.name)
        self.start(context)

    def start(self, context: Context) -> None:
        """Gets ready on the driver, before the first item."""

    def bind(self, worker: Any) -> None:
        """Gives a copy that runs at a source its worker, before the first item."""

    def pull(self, output: int = 0) -> Pulled:
        """The next item of an output, or a signal. Moves at most one item; never waits."""
        if self.gates and not self.gates_open():
            return NOT_READY
        item = self.take()
        if isinstance(item, Signal):
            return self.at_end() if item is END else item
        started = self._now()
        try:
            result = self.process(item)
            if self._right is not None and type(payload := getattr(result, "payload", result)) not in self._right:
                check_type(payload, self._gives)
                self._right.add(type(payload))
        except Exception as error:
            return self._skipped(item, error)
        self._failures_in_a_row = 0
        timer = self.timer
        timer.items += 1
        timer.seconds += self._now() - started
        return result

    def process(self, envelope: Envelope) -> Pulled:
        """Transforms an envelope: by default its payload alone."""
        payload: Any = self(envelope.payload)
        if payload is ABSORBED:
            return ABSORBED
        return envelope.carrying(payload)

    def __call__(self, item: Any) -> Any:
        """Transforms one item."""
        raise NotImplementedError(f"{type(self).__name__} works on envelopes, or defines neither __call__ nor process")

    def work_as(self, process: Callable[[Envelope], Pulled]) -> None:
        """Has a stand-in work on its items in its place, which may give items of any type; see `flow.simulation`."""
        self.process, self._right = process, None  # type: ignore[method-assign, assignment]

    def flush(self) -> list[Envelope]:
        """Items that are still inside when the stream ends."""
        return []

    def _skipped(self, item: Envelope, error: Exception) -> Pulled:
        """Skips and counts an item that the operator failed on, if that is its rule."""
        self._failures_in_a_row += 1
        rule = self.failure_rule or FailureRule()
        if rule.on_error == "stop" or self._failures_in_a_row >= rule.attempts:
            raise failure(self.name, item, error) from error
        self._counters.fail(self.name)
        return ABSORBED

    def at_end(self) -> Pulled:
        """After upstream has ended: the items that were kept back, then END."""
        if not self.ended:
            self.ended = True
            try:
                self.flushed.extend(self.flush())
            except Exception as error:
                raise failure(self.name, Envelope(None, "end of stream", self.timer.items), error) from error
        return self.flushed.popleft() if self.flushed else END

    def gates_open(self) -> bool:
        """Whether it may take another item."""
        return all(gate() for gate in self.gates)

    def waits_on(self) -> Iterator[Call]:
        """Calls that it waits for."""
        return iter(())

    def wakes_at(self) -> float | None:
        """The time at which it can continue although no call is done; None if there is none."""
        return None

    def drain(self) -> None:
        """Waits until none of its calls is under way, for a checkpoint."""

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, **metrics: Any) -> None:
        """Adds numbers to the next report of the plan, which has the mean of each as ``"<operator>/<name>"``.

        For a subclass to call while it works on an item::

            class Watch(Operator):
                def __call__(self, batch: SampleBatch) -> SampleBatch:
                    self.report(reward=batch["rewards"].mean())
                    return batch

        Args:
            **metrics: One number each, which may still be on a device.

        Raises:
            PlanError: If it is not in a plan that runs, or works beside the workers.
        """
        if self.add_metrics is None:
            raise no_metrics(self.default_name(), list(metrics))
        self.add_metrics(metrics)

    def obstacle(self) -> str:
        """The reason why it is not ready, for the error of a stalled plan; empty if it is ready."""
        return "" if self.gates_open() else "held back by the rate limiter until more samples were trained on"

    def measures(self) -> dict[str, float]:
        """Its measures: numbers about its present state, for reports."""
        return {}

    def placement(self) -> str:
        """Where it runs, for ``explain``."""
        return "driver" if self.beside is None else "at the actors"

    def note(self) -> str:
        """Its settings, for ``explain``."""
        return ""

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """The messages that it sends beside its items, for ``explain`` and ``draw``.

        Returns:
            For each kind of message: the receiver (workers, a memory, or any object), what is sent, how many may be
            under way to each receiver, and what happens when there are more.
        """
        takes = self.sends_to is not None and self.sends_to.take_weights()
        return [(self.sends_to, "weights", "1", "the newest replace older ones")] if takes else []

    def progress(self) -> str:
        """Further lines for the picture of a running plan."""
        return ""

    # -- checkpoints --------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: by default the attributes that ``state`` names.

        Returns:
            JSON-able data and arrays, all of which later items leave alone.
        """
        return state_of(self, type(self).state, self.name)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        load_state(self, type(self).state, state)

    def keeps_state(self) -> bool:
        """Whether a checkpoint keeps anything of it."""
        return bool(type(self).state) or type(self).state_dict is not Operator.state_dict


def _puller(port: Port) -> Callable[[], Pulled]:
    """A function that pulls from an output."""
    source, index = port.node, port.index
    if len(source.outputs) == 1:
        return source.pull
    return lambda: source.pull(index)


def check_input(producer: Port, consumer: str, takes: Any = Any, parallel: bool = False) -> None:
    """Checks that items have been gathered (unless the consumer works at the sources), and that they fit.

    Raises:
        PlanError: Naming both operators and their types.
    """
    if producer.parallel and not parallel:
        raise not_gathered(producer.node.name, producer.describe(), consumer)
    if not fits(producer.item_type, takes):
        raise does_not_fit(producer.node.name, producer.describe(), producer.item_type, consumer, takes)

"""``Operator``: a transformation of items with state, a name, and types; and the small ones behind stream methods."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rlweave.errors import ConfigError, PlanError, nearest
from rlweave.flow.engine import Call
from rlweave.flow.envelope import ABSORBED, Envelope, Pulled, merge
from rlweave.flow.item_state import decode_envelopes, encode_envelopes
from rlweave.flow.item_types import Signature, check_arguments, signature_of
from rlweave.flow.node import Node, snake_case
from rlweave.flow.protocols import BatchType, Learner, steps_of
from rlweave.flow.work import Work

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.learner_actor import LearnerActor
    from rlweave.flow.node import Node
    from rlweave.flow.plan_graph import PlanGraph
    from rlweave.flow.workers import WorkerGroup

Item = TypeVar("Item")


class Operator:
    """Base of operators for ``for_each`` and ``par_for_each``. Any callable will do there too, if it needs no more.

    A subclass defines ``__call__`` with annotations, which are the item types that the plan checks::

        class ScaleRewards(Operator):
            def __call__(self, batch: SampleBatch) -> SampleBatch: ...

    ``__call__`` may return ``ABSORBED``: nothing comes out for this item. An operator that needs to know where an
    item comes from overrides ``process`` instead, which takes and gives envelopes, and says its item types by
    ``signature``; so does one that has a `Work` do this. What it finds out about the items it tells by `report`.

    Args:
        work: What works on envelopes for it and has its state, if anything does: see `rlweave.flow.work.Work`.
    """

    _work: Work = Work()
    """What works on envelopes for it; this one does nothing, and ``process`` calls the operator itself."""
    at_source: ClassVar[bool] = True
    """Whether it may run at the workers; false where it refers to objects of the driver."""
    merges: ClassVar[bool] = False
    """Whether it makes items of several ones; then what comes out is of no round."""
    fills: Any = None
    """The memory that it stores into, if any."""
    trains: Learner | LearnerActor | None = None
    """The learner that it has work on its items, if any."""
    learner_actor: LearnerActor | None = None
    """The same, if it lives in an actor; then the operator has ``begin`` and ``finish``."""
    group: WorkerGroup | None = None
    """The workers that it sends something to, if any."""
    add_metrics: Callable[[Mapping[str, Any]], None] | None = None
    """Takes metrics of this operator; set where it stands in a plan that runs, behind a gather."""
    gate: Callable[[], bool] | None = None
    """Says whether it can take another item now, if that is not always so; set by ``start``."""

    def __init__(self, work: Work | None = None) -> None:
        if work is not None:
            self._work, self.group, self.trains, self.learner_actor = work, work.group, work.trains, work.learner_actor

    def __getstate__(self) -> dict[str, Any]:
        """What a copy beside a worker takes along: everything but its place in the plan."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_node", "add_metrics")}

    def __call__(self, item: Any) -> Any:
        """Transforms one item."""
        raise NotImplementedError(f"{type(self).__name__} works on envelopes, or defines neither __call__ nor process")

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
            raise PlanError(
                "metrics are reported from operators behind a gather, in a plan that runs",
                where=f"operator {self.default_name()!r}",
                received=f"report({', '.join(metrics)})",
                fix="at the workers, let the item carry the numbers, and report them in for_each behind the gather",
            )
        self.add_metrics(metrics)

    def default_name(self) -> str:
        """Its name in a plan unless the user gives one."""
        return snake_case(type(self).__name__)

    def signature(self) -> Signature:
        """Item types taken and given."""
        return signature_of(self)

    def produced(self, received: Any) -> Any:
        """Type of the items that come out when items of type ``received`` go in."""
        return self.signature().produced(received)

    def check(self, node: Node) -> None:
        """Raises PlanError for what is wrong at its place in a plan, whose node is being made."""

    def works_on_envelopes(self) -> bool:
        """Whether it does more than to make a payload of each payload, so that it has to be behind a gather."""
        kind = type(self)
        processes = kind.process is not Operator.process and kind.__call__ is Operator.__call__
        return processes or kind.flush is not Operator.flush or self._work is not Operator._work

    def bind(self, worker: Any) -> None:
        """Gives an operator that runs at a source its worker, before the first item."""

    def start(self, context: Context, name: str) -> None:
        """Gets ready on the driver, before the first item."""
        self._work.start(context, name)

    def process(self, envelope: Envelope) -> Pulled:
        """Transforms an envelope: by default its payload alone."""
        if self._work is not Operator._work:
            return self._work.process(envelope)
        payload: Any = self(envelope.payload)
        if payload is ABSORBED:
            return ABSORBED
        return envelope.carrying(payload)

    def check_plan(self, node: Node, graph: PlanGraph) -> None:
        """Raises PlanError for what can be known to be wrong only when the whole plan is there.

        Args:
            node: Where this operator stands in the plan.
            graph: All operators.
        """
        self._work.check_plan(node, graph)

    def admits(self, envelope: Envelope) -> bool:
        """Whether an actor is to work on an item; asked once, right before. One that is not is dropped, and counted."""
        return self._work.admits(envelope)

    def begin(self, envelope: Envelope) -> Call:
        """Starts the work on an item at an actor; only where there is a ``learner_actor``."""
        return self._work.begin(envelope)

    def finish(self, envelope: Envelope, result: Any) -> Pulled:
        """Makes an envelope of the result of the call that ``begin`` started."""
        return self._work.finish(envelope, result)

    def flush(self) -> list[Envelope]:
        """What is still inside when the stream ends."""
        return []

    def waits_on(self) -> Iterator[Call]:
        """Calls whose completion opens its ``gate``."""
        return iter(())

    def note(self) -> str:
        """Settings worth a line in ``explain``."""
        return self._work.note()

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """What it sends beside its items, for ``explain`` and ``draw``.

        Returns:
            For each kind of message: the receiver (workers, a memory, or any object), what is sent, how many may be
            under way to each receiver, and what happens when there are more.
        """
        return [] if self.group is None else [(self.group, "weights", "1", "the newest replace older ones")]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON-able data and arrays."""
        return self._work.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._work.load_state_dict(state)


class FunctionOperator(Operator):
    """A plain callable as an operator."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, item: Any) -> Any:
        """Calls the function."""
        return self.function(item)

    def default_name(self) -> str:
        """The function's name."""
        return snake_case(getattr(self.function, "__name__", type(self.function).__name__))

    def signature(self) -> Signature:
        """The function's annotations."""
        return signature_of(self.function)


class FilterItems(Operator):
    """Lets those items through for which a predicate holds. Behind ``Stream.filter``."""

    def __init__(self, predicate: Callable[[Any], bool]) -> None:
        check_arguments(predicate, 1, "operator 'filter'", "a predicate")
        self.predicate = predicate

    def __call__(self, item: Item) -> Item:
        """The item, or ABSORBED."""
        return item if self.predicate(item) else ABSORBED  # type: ignore[return-value]

    def default_name(self) -> str:
        """``filter``."""
        return "filter"

    def signature(self) -> Signature:
        """Takes what the predicate takes; gives what it gets."""
        takes = signature_of(self.predicate).takes
        return Signature(takes, Item)

    def produced(self, received: Any) -> Any:
        """What goes in comes out."""
        return received


class Buffering(Operator):
    """Base of operators that merge several items into one. What is left at the end of a stream is flushed.

    Args:
        enough: Size from which on the items kept make one.
        size_of: The size of an item; by default each counts as 1.
    """

    merges: ClassVar[bool] = True

    def __init__(self, enough: int = 1, size_of: Callable[[Any], int] | None = None) -> None:
        self.enough = enough
        self._size_of = size_of
        self._size = 0
        self._name = ""
        self._kept: list[Envelope] = []
        self._made = 0

    def start(self, context: Context, name: str) -> None:
        """Learns the name that merged items carry as their source."""
        self._name = name

    def merged(self, payloads: list[Any]) -> Any:
        """One payload made of several."""
        raise NotImplementedError

    def process(self, envelope: Envelope) -> Pulled:
        """Keeps the item, and gives the merged one when there is enough."""
        self._size += self._size_in(envelope)
        self._kept.append(envelope)
        return self._release() if self._size >= self.enough else ABSORBED

    def _size_in(self, envelope: Envelope) -> int:
        return 1 if self._size_of is None else self._size_of(envelope.payload)

    def _release(self) -> Envelope:
        # first: where merging fails and is skipped, these must not come again with every later item
        kept, self._kept, self._size = self._kept, [], 0
        item = merge(kept, self.merged([envelope.payload for envelope in kept]), self._name, self._made)
        self._made += 1
        return item

    def flush(self) -> list[Envelope]:
        """The last, smaller item."""
        return [self._release()] if self._kept else []

    def state_dict(self) -> dict[str, Any]:
        """The items kept, and the number of items made."""
        return {"made": self._made, "kept": encode_envelopes(self._kept, self._name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._made = int(state["made"])
        self._kept = decode_envelopes(state["kept"])
        self._size = sum(self._size_in(envelope) for envelope in self._kept)


class BatchItems(Buffering):
    """Makes lists of n items; the last one of a stream may be shorter. Behind ``Stream.batch``."""

    def __init__(self, n: int) -> None:
        super().__init__(positive("n", n, "batch"))

    def merged(self, payloads: list[Any]) -> list[Any]:
        """The list itself."""
        return payloads

    def default_name(self) -> str:
        """``batch``."""
        return "batch"

    def signature(self) -> Signature:
        """Takes anything."""
        return Signature(Any, list)

    def produced(self, received: Any) -> Any:
        """A list of what goes in."""
        return list[received]

    def note(self) -> str:
        """The length of the lists."""
        return f"n={self.enough}"


class ConcatBatches(Buffering):
    """Glues whole batches together, in order, until they have at least ``min_steps`` environment steps.

    Args:
        min_steps: Environment steps that make an item. Nothing is cut, so there may be more; the last item of a
            stream may have fewer.
    """

    def __init__(self, min_steps: int) -> None:
        super().__init__(positive("min_steps", min_steps, "concat_batches"), steps_of)

    def merged(self, payloads: list[Any]) -> Any:
        """The glued batch."""
        return payloads[0].concat(payloads)

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(BatchType, BatchType)

    def note(self) -> str:
        """The number of steps."""
        return f"min_steps={self.enough}"


class SelectPolicy(Operator):
    """Takes one policy's part out of items that are mappings by policy name. Behind ``Stream.select``."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def __call__(self, item: Mapping[str, Any]) -> Any:
        """The policy's part.

        Raises:
            PlanError: If the item has no such policy.
        """
        try:
            return item[self.policy]
        except KeyError:
            raise PlanError(
                f"an item has no policy {self.policy!r}",
                where="select",
                received=f"policies {sorted(item)}",
                fix=nearest(self.policy, item),
            ) from None

    def default_name(self) -> str:
        """``select``."""
        return "select"

    def produced(self, received: Any) -> Any:
        """The value type of the mapping."""
        kinds = [received, *getattr(received, "__orig_bases__", ())]
        values = [arguments[-1] for kind in kinds if len(arguments := typing.get_args(kind)) == 2]
        return values[0] if values else Any

    def note(self) -> str:
        """The policy."""
        return f"policy={self.policy}"


def as_operator(function: Operator | Callable[[Any], Any]) -> Operator:
    """The operator itself, or a plain callable wrapped as one.

    Raises:
        PlanError: If it cannot be called with one item, or is an operator class instead of an instance.
    """
    if isinstance(function, Operator):
        if not function.works_on_envelopes():
            check_arguments(function, 1, f"operator {function.default_name()!r}", "an operator")
        return function
    if isinstance(function, type) and issubclass(function, Operator):
        raise PlanError(
            "an operator class was given where an operator is needed",
            where=f"operator {function.__name__}",
            received=f"the class {function.__name__}",
            fix=f"make one: {function.__name__}(...)",
        )
    if not callable(function):
        raise PlanError(
            "an operator must be callable",
            where="for_each",
            received=type(function).__name__,
            fix="give an Operator or a function of one item",
        )
    operator = FunctionOperator(function)
    check_arguments(function, 1, f"operator {operator.default_name()!r}", "an operator")
    return operator


def positive(name: str, value: int, operator: str) -> int:
    """Checks a count.

    Raises:
        ConfigError: If it is not a whole number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{name} must be a whole number above 0", where=f"operator {operator!r}", received=repr(value)
        )
    return value

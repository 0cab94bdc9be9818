"""Operators behind the methods of streams: functions, filters, batches, lists and rounds."""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from rlweave.errors import PlanError, nearest
from rlweave.flow.branching import Unite
from rlweave.flow.envelope import ABSORBED, END, Envelope, HeldBatch, ItemReference, Pulled, Signal, merge
from rlweave.flow.gather_modes import GatherSync
from rlweave.flow.item_types import Signature, check_arguments, positive, signature_of, snake_case
from rlweave.flow.operator import Operator, Port, check_input
from rlweave.flow.protocols import steps_of

Item = TypeVar("Item")


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
    """Passes the items for which a predicate holds. Behind ``Stream.filter``."""

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
    """Base of operators that merge several items into one. The rest at the end of a stream is flushed.

    Args:
        enough: Size at which the kept items are merged.
        size_of: The size of an item; by default each counts as 1.
    """

    merges: ClassVar[bool] = True
    state = ("_made", "_kept", "_size")

    def __init__(self, enough: int = 1, size_of: Callable[[Any], int] | None = None) -> None:
        self.enough = enough
        self._size_of = size_of
        self._size = 0
        self._kept: list[Envelope] = []
        self._made = 0

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
        # first: if merging fails and is skipped, these items must not be merged again with every later one
        kept, self._kept, self._size = self._kept, [], 0
        item = merge(kept, self.merged([envelope.payload for envelope in kept]), self.name, self._made)
        self._made += 1
        return item

    def flush(self) -> list[Envelope]:
        """The last, smaller item."""
        return [self._release()] if self._kept else []


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
    """Concatenates whole batches, in order, until they have at least ``min_steps`` environment steps.

    Args:
        min_steps: Environment steps that make an item. Nothing is cut, so there may be more; the last item of a
            stream may have fewer.
    """

    def __init__(self, min_steps: int) -> None:
        super().__init__(positive("min_steps", min_steps, "concat_batches"), steps_of)

    def merged(self, payloads: list[Any]) -> Any:
        """The concatenated batch; a reference to one that is whole already stays a reference."""
        if not isinstance(payloads[0], ItemReference):
            return payloads[0].concat(payloads)
        if len(payloads) == 1:
            return payloads[0]
        items = [reference.fetch() for reference in payloads]
        return ItemReference.to(items[0].concat(items))

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(HeldBatch, HeldBatch)

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
        if type(function).__call__ is not Operator.__call__:
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


class Flatten(Operator):
    """Takes lists apart: each element becomes an item with its list's source and number."""

    state = ("_waiting",)
    on_error_choices = ()
    takes = list

    def __init__(self, upstream: Port) -> None:
        check_input(upstream, "flatten", list)
        self.enter([upstream], "flatten")
        arguments = typing.get_args(upstream.item_type)
        self.outputs = [Port(self, 0, arguments[0] if arguments else Any)]
        self._waiting: deque[Envelope] = deque()

    def pull(self, output: int = 0) -> Pulled:
        """The next element."""
        if not self._waiting:
            item = self.take()
            if isinstance(item, Signal):
                self.ended = item is END
                return item
            self._waiting.extend(item.carrying(element) for element in item.payload)
            self.timer.items += 1
        return self._waiting.popleft() if self._waiting else ABSORBED


class BatchRounds(Operator):
    """Makes a list of the items of each round. Behind ``Stream.batch_rounds``.

    A list is complete as soon as the last item of its round is here, so that it goes through the plan before the next
    round is requested. Where that item was dropped on its way (by a filter, or skipped after a failure), the list comes
    with the first item of the next round: its items are of one round even so, but are a round old.

    Rounds of several gathers may come mixed, as behind a union; each gather has lists of its own.
    """

    state = ("_made", "_kept", "_waiting")
    merges = True
    on_error_choices = ()

    def __init__(self, upstream: Port) -> None:
        check_input(upstream, "batch")
        _check_rounds(upstream, upstream)
        self.enter([upstream], "batch")
        self.outputs = [Port(self, 0, _list_of(upstream.item_type))]
        self._kept: dict[str, list[Envelope]] = {}
        """Items of a round that has not ended, by gather."""
        self._waiting: deque[Envelope] = deque()
        self._made = 0

    def pull(self, output: int = 0) -> Pulled:
        """The next list.

        Raises:
            PlanError: An item is of no round, because an operator merged rounds or makes items of its own.
        """
        if self._waiting:
            return self._waiting.popleft()
        item = self.take()
        if isinstance(item, Signal):
            if item is not END:
                return item
            self.ended = True
            for kept in self._kept.values():
                self._release(kept)
        else:
            self.timer.items += 1
            self._keep(item)
        if self._waiting:
            return self._waiting.popleft()
        return END if self.ended else ABSORBED

    def _keep(self, item: Envelope) -> None:
        mark = item.round
        if mark is None:
            raise PlanError(
                "an item belongs to no round",
                where=f"operator {self.name!r}",
                received=item.describe(),
                fix="let operators between gather_sync() and batch_rounds() pass items on one by one, in their "
                "envelopes (envelope.carrying(payload))",
            )
        kept = self._kept.setdefault(mark.gather, [])
        if kept and kept[0].round is not None and kept[0].round.number != mark.number:
            self._release(kept)
        kept.append(item)
        if mark.last:
            self._release(kept)

    def _release(self, kept: list[Envelope]) -> None:
        if kept:
            self._waiting.append(merge(kept, [item.payload for item in kept], self.name, self._made))
            self._made += 1
            kept.clear()

    def note(self) -> str:
        """The size of the lists."""
        return "one list per round"


def _list_of(item_type: Any) -> Any:
    return list[item_type]


def _check_rounds(port: Port, upstream: Port) -> set[Operator]:
    """Checks that the items of a port come in rounds, one for each item that the gather delivered.

    Returns:
        The gathers whose rounds come.

    Raises:
        PlanError: Names the operator whose items do not come in rounds.
    """
    node = port.node
    if isinstance(node, GatherSync):
        return {node}
    merging = isinstance(node, Flatten) or (node.merges and not isinstance(node, BatchRounds))
    if merging or not node.inputs or port.parallel or any(above.parallel for above in node.inputs):
        raise PlanError(
            "batch_rounds() needs items in rounds",
            where=f"operators {node.name!r} and 'batch'",
            received=f"{upstream.describe()}; {node.name!r} "
            + ("makes other items of those of a round" if merging else "gives items one by one"),
            fix="put batch_rounds() behind gather_sync(), before operators that merge items or take lists apart; "
            "use batch(n) where there are no rounds",
        )
    inputs = node.inputs
    if isinstance(node, Unite) and node.output is not None:
        inputs = [inputs[node.output]]
    found: set[Operator] = set()
    for above in inputs:
        gathers = _check_rounds(above, upstream)
        if twice := found & gathers:
            raise PlanError(
                "the items of a round come by two ways in any order, so the end of a round is unknown",
                where=f"operators {node.name!r} and 'batch'",
                received=f"both branches bring items of {next(iter(twice)).name!r}",
                fix="put batch_rounds() before the split, or into one of its branches",
            )
        found |= gathers
    return found

"""Lists of whole rounds: what a ``gather_sync`` delivered together stays together, however many sources were there."""

from __future__ import annotations

from collections import deque
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.branching import Unite
from rlweave.flow.envelope import ABSORBED, END, Envelope, Pulled, Signal, merge
from rlweave.flow.gather import GatherSync
from rlweave.flow.operator import Operator, Port, check_input
from rlweave.flow.transforms import Flatten


class BatchRounds(Operator):
    """Makes a list of the items of each round. Behind ``Stream.batch_rounds``.

    A list is made as soon as the last item of its round is here, so that it goes through the plan before the next round
    is asked for. Where that item was left out on its way (by a filter, or skipped after a failure), the list is made
    when the first item of the next round comes: its items are of one round even so, but are a round old.

    Rounds of several gathers may come mixed, as behind a union; each makes lists of its own.
    """

    state = ("_made", "_kept", "_waiting")
    merges = True
    on_error_choices = ()

    def __init__(self, upstream: Port) -> None:
        check_input(upstream, "batch")
        _check_rounds(upstream, upstream)
        self.enter([upstream], "batch")
        self.connect()
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
        """What makes a list."""
        return "one list per round"


def _list_of(item_type: Any) -> Any:
    return list[item_type]


def _check_rounds(port: Port, upstream: Port) -> set[Operator]:
    """Checks that what comes out of a port comes in rounds, one item of each that the gather delivered.

    Returns:
        The gathers whose rounds come.

    Raises:
        PlanError: Naming the operator that it does not come in rounds from.
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
                "the items of a round come by two ways, in any order, so nobody can say where the round ends",
                where=f"operators {node.name!r} and 'batch'",
                received=f"both branches bring items of {next(iter(twice)).name!r}",
                fix="put batch_rounds() before the split, or into one of its branches",
            )
        found |= gathers
    return found

"""Lists of whole rounds: what a ``gather_sync`` delivered together stays together, however many sources were there."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlweave.errors import PlanError
from rlweave.flow.branching import UnionNode
from rlweave.flow.envelope import ABSORBED, END, Envelope, Pulled, Signal, merge
from rlweave.flow.gather import GatherSync
from rlweave.flow.item_state import decode_envelopes, encode_envelopes
from rlweave.flow.node import Node, Port
from rlweave.flow.transforms import Flatten, ForEach, check_input

if TYPE_CHECKING:
    from rlweave.flow.context import Context


class BatchRounds(Node):
    """Makes a list of the items of each round. Behind ``Stream.batch_rounds``.

    A list is made as soon as the last item of its round is here, so that it goes through the plan before the next round
    is asked for. Where that item was left out on its way (by a filter, or skipped after a failure), the list is made
    when the first item of the next round comes: its items are of one round even so, but are a round old.

    Rounds of several gathers may come mixed, as behind a union; each makes lists of its own.
    """

    gathers_up = True

    def __init__(self, upstream: Port) -> None:
        super().__init__("batch", [upstream])
        check_input(upstream, self.name)
        _check_rounds(upstream, upstream)
        self.connect()
        self.outputs = [Port(self, 0, _list_of(upstream.item_type))]
        self._kept: dict[str, list[Envelope]] = {}
        """Items of a round that has not ended, by gather."""
        self._unmarked: list[Envelope] = []
        """Items of a checkpoint from before items knew their round: the next one is of the same round."""
        self._waiting: deque[Envelope] = deque()
        self._made = 0
        self._resumed_old = False

    def start(self, context: Context) -> None:
        """Binds its upstream."""
        self._upstream = self.puller(self.inputs[0])

    def pull(self, output: int = 0) -> Pulled:
        """The next list.

        Raises:
            PlanError: An item is of no round, because an operator merged rounds or makes items of its own.
        """
        if self._waiting:
            return self._waiting.popleft()
        item = self._upstream()
        if isinstance(item, Signal):
            if item is not END:
                return item
            self.ended = True
            for kept in [self._unmarked, *self._kept.values()]:
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
                received=item.describe() + (", from a checkpoint of before items knew it" if self._resumed_old else ""),
                fix="resume from a checkpoint that had no items under way between them, or begin anew"
                if self._resumed_old
                else "let operators between gather_sync() and batch_rounds() pass items on one by one, in their "
                "envelopes (envelope.carrying(payload))",
            )
        kept = self._kept.setdefault(mark.gather, [])
        kept += [old._replace(round=mark._replace(last=False)) for old in self._unmarked]
        self._unmarked = []
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

    def state_dict(self) -> dict[str, Any]:
        """Items of rounds that have not ended, and lists that have not come out yet."""
        kept = [item for items in self._kept.values() for item in items]
        return {
            "made": self._made,
            "kept": encode_envelopes(self._unmarked + kept, self.name),
            "waiting": encode_envelopes(self._waiting, self.name),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state, also that of a ``batch(len(workers))`` which stood here before there were rounds."""
        inner = state.get("operator", state)
        self._resumed_old = "waiting" not in state
        self._made, self._kept, self._unmarked = int(inner["made"]), {}, []
        for item in decode_envelopes(inner["kept"]):
            (self._unmarked if item.round is None else self._kept.setdefault(item.round.gather, [])).append(item)
        self._waiting = deque(decode_envelopes(state["waiting"] if "waiting" in state else state["flushed"]))


def _list_of(item_type: Any) -> Any:
    return list[item_type]


def _check_rounds(port: Port, upstream: Port) -> set[Node]:
    """Checks that what comes out of a port comes in rounds, one item of each that the gather delivered.

    Returns:
        The gathers whose rounds come.

    Raises:
        PlanError: Naming the operator that it does not come in rounds from.
    """
    node = port.node
    if isinstance(node, GatherSync):
        return {node}
    merging = isinstance(node, Flatten) or (isinstance(node, ForEach) and node.operator.merges)
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
    if isinstance(node, UnionNode) and node.output is not None:
        inputs = [inputs[node.output]]
    found: set[Node] = set()
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

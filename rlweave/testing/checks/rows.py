"""Rows and steps: none may reach another, and neither order nor number of the rows may change what becomes of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlweave.graph.ir import Call
from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, moved, positions
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning, meaning_of
from rlweave.testing.checks.recording import Leaf, Recording, Step, pairs, same_array
from rlweave.testing.checks.subject import Situation, Subject


@dataclass(frozen=True)
class Leak:
    """A node whose results move in rows (or time steps) in which none of its inputs moves.

    Args:
        step: The node, as it ran before the change.
        output: Name of the result.
        indices: The rows (or time steps) that moved.
        through: Name of the input, or path of the variable, that brought the change and has no such axis; "" where the
            node itself spreads it.
    """

    step: Step
    output: str
    indices: frozenset[int]
    through: str = ""


class Movement:
    """Compares two recordings of a call, the second with one row (or time step) of its inputs changed.

    What a node spreads on purpose (it is declared, or it is an optimizer's step) is followed, and no fault of those
    that use it.

    Args:
        along: Batch or time.
        sizes: Sizes of the ranks.
    """

    def __init__(self, along: Along, sizes: Mapping[str, int]) -> None:
        self.along, self.sizes = along, sizes
        self._excused: set[int] = set()
        self._excused_variables: dict[str, bool] = {}

    def leaks(self, one: Recording, other: Recording, index: int) -> Iterator[Leak]:
        """The nodes that spread the change, each once, in the order in which they ran."""
        reported: set[int] = set()
        for before, after in pairs(one, other):
            # a value that is said to be a batch has rows of its own: those of a minibatch, say
            relabels = isinstance(before.node, Call) and before.node.relabels
            leak = None if relabels else self._leak(before, after, index)
            excused = leak is not None or self._excuses(before, after)
            if leak is not None and id(before.node) not in reported:
                reported.add(id(before.node))
                yield leak
            self._follow(before, after, excused)

    def _leak(self, before: Step, after: Step, index: int) -> Leak | None:
        reached: set[int] = set()
        through: str | None = None
        for name, leaf in before.inputs.items():
            where = moved(leaf.space, leaf.array, after.inputs[name].array, self.along, self.sizes)
            if where is not None:
                reached |= where
            elif id(leaf.value) in self._excused:
                return None
            else:
                through = through or name
        for path, array in before.read.items():
            if not same_array(array, after.read[path]):
                if self._excused_variables.get(path, True):
                    return None
                through = through or path
        for name, leaf in before.outputs.items():
            where = moved(leaf.space, leaf.array, after.outputs[name].array, self.along, self.sizes, tolerance=1e-4)
            if where is None:
                continue
            wrong = self._wrong(before, where, reached or ({index} if through else set()))
            if wrong:
                return Leak(before, name, frozenset(wrong), through or "")
        return None

    def _wrong(self, step: Step, found: frozenset[int], reached: set[int]) -> set[int]:
        call = step.declared
        if self.along is Along.BATCH:
            return set() if call is not None and call.mixes_batch else set(found) - reached
        if not reached:
            return set(found)
        if call is not None and call.mixes_batch:
            return set()
        if call is not None and call.looks_ahead:
            return {t for t in found if t > max(reached)}
        return {t for t in found if t < min(reached)}

    def _excuses(self, before: Step, after: Step) -> bool:
        """Whether what a node makes without the axis may be used for all rows."""
        call = before.declared
        if call is not None and (call.mixes_batch or (self.along is Along.TIME and call.looks_ahead)):
            return True
        return any(
            id(leaf.value) in self._excused and not same_array(leaf.array, after.inputs[name].array)
            for name, leaf in before.inputs.items()
        )

    def _follow(self, before: Step, after: Step, excused: bool) -> None:
        if excused:
            self._excused.update(id(leaf.value) for leaf in before.outputs.values())
        component = before.node.component if isinstance(before.node, Call) else None
        path = component.path if component is not None else None
        for variable, array in before.written.items():
            if not same_array(array, after.written[variable]):
                # what a component keeps of a batch and uses on that very batch reaches all rows; what an optimizer
                # writes into others' variables is learning
                own = path is not None and variable.startswith(path + "/")
                self._excused_variables[variable] = excused or not own

    def spreads(self, one: Recording, other: Recording, step: Step) -> bool:
        """Whether a node makes rows (or steps) depend on each other, or reduces them."""
        for before, after in pairs(one, other):
            if before.node is not step.node:
                continue
            reached: set[int] = set()
            for name, leaf in before.inputs.items():
                reached |= moved(leaf.space, leaf.array, after.inputs[name].array, self.along, self.sizes) or set()
            for name, leaf in before.outputs.items():
                array = after.outputs[name].array
                where = moved(leaf.space, leaf.array, array, self.along, self.sizes, tolerance=1e-4)
                if where is None or (self.along is Along.BATCH and set(where) - reached):
                    return True
                if self.along is Along.TIME and any(t < min(reached, default=0) for t in where):
                    return True
            if any(not np.array_equal(x, after.written[path]) for path, x in before.written.items()):
                return True
        return False


def batch_independence(subject: Subject) -> Iterator[Finding]:
    """One row is sampled anew; no result may move in another row, unless its graph function declares `mixes_batch`."""
    for situation in subject.situations():
        for index in (1, situation.sizes["B"] - 1):
            changed = situation.with_index(Along.BATCH, index)
            if not changed:
                continue
            movement = Movement(Along.BATCH, situation.sizes)
            for leak in movement.leaks(situation.base, situation.run(changed), index):
                yield situation.finding(
                    "batch independence",
                    leak.step,
                    f"row {index} of {listed(changed)} was sampled anew, and {moved_part(leak, 'row')} moved",
                    Cause.ROWS_MEET,
                    "reduce over feature axes, not over axis 0; where rows are meant to meet, as when advantages are "
                    "normalized, declare @graph_fn(mixes_batch=True)",
                )


def batch_order(subject: Subject) -> Iterator[Finding]:
    """The rows are reversed; the results have to be the reversed ones. Random results are left out."""
    for situation in subject.situations():
        changed = {}
        for path, space in situation.inputs.items():
            reversed_rows = _reversed(space, situation.flat[path], situation)
            if reversed_rows is not None:
                changed[path] = reversed_rows
        if not changed or situation.draws:
            continue
        excused: set[int] = set()
        for before, after in pairs(situation.base, situation.run(changed)):
            if before.may_mix or _moves(before, after, situation, excused):
                excused.update(id(leaf.value) for leaf in before.outputs.values())
            elif any(not _is_reversed(leaf, after.outputs[name], situation) for name, leaf in before.outputs.items()):
                yield Finding(
                    "batch order",
                    before.where,
                    f"{situation.where}: the rows of {listed(changed)} were reversed, and its result is another one",
                    Cause.ROW_ORDER_COUNTS,
                    "treat all rows alike: nothing may depend on the number of a row",
                )
                break


def _moves(before: Step, after: Step, situation: Situation, excused: set[int]) -> bool:
    """Whether a node got something else than reversed rows."""
    return not before.reads_the_same(after) or any(
        id(leaf.value) in excused or not _is_reversed(leaf, after.inputs[name], situation)
        for name, leaf in before.inputs.items()
    )


def _is_reversed(one: Leaf, other: Leaf, situation: Situation) -> bool:
    expected = _reversed(one.space, one.array, situation)
    expected = one.array if expected is None else expected
    return expected.shape == other.array.shape and not differs(expected, other.array, 1e-4).any()


def _reversed(space: Box, array: np.ndarray, situation: Situation) -> np.ndarray | None:
    """An array with its rows in reversed order; None where it has no rows."""
    where = positions(space, array.shape, Along.BATCH, situation.sizes)
    if where is None:
        return None
    axis = int(np.argmax(where.shape)) if where.size > 1 else 0
    rows, steps = where.reshape(-1), positions(space, array.shape, Along.TIME, situation.sizes)
    folded = steps is not None and steps.shape == where.shape
    times = steps.reshape(-1) if steps is not None and folded else np.zeros_like(rows)
    order = np.lexsort((-rows, times))
    return np.take(array, order, axis=axis)


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names in a sentence."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def moved_part(leak: Leak, what: str) -> str:
    """What moved, in words."""
    name = f"its result {leak.output!r}" if leak.output else "its result"
    found = sorted(leak.indices)
    through = f" (through {leak.through!r}, which has no such axis)" if leak.through else ""
    return f"{name} in {what}{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}{through}"


_AHEAD = (
    "use what is known at a step: x[:-1] for what came before; what sums over the future, as returns do, declares "
    "@graph_fn(looks_ahead=True)"
)
_BACK = "row t of a return belongs to step t: it sums rewards[t:] and the values after them; see where an index is off"


def causality(subject: Subject) -> Iterator[Finding]:
    """One time step is sampled anew; no result before it may move, unless its graph function declares `looks_ahead`."""
    for situation in subject.situations():
        returns = Meaning.REWARDS in map(meaning_of, situation.inputs)
        for index in range(1, situation.sizes["T"]):
            changed = situation.with_index(Along.TIME, index)
            if not changed:
                continue
            movement = Movement(Along.TIME, situation.sizes)
            for leak in movement.leaks(situation.base, situation.run(changed), index):
                back = min(leak.indices) > index
                if back and not returns:
                    continue  # what smooths a trajectory looks both ways
                yield situation.finding(
                    "causality",
                    leak.step,
                    f"step {index} of {listed(changed)} was sampled anew, and {moved_part(leak, 'step')} moved",
                    Cause.LOOKS_BACK if back else Cause.LOOKS_AHEAD,
                    _BACK if back else _AHEAD,
                )

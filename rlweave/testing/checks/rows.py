"""Rows of a batch: none may reach another, and neither their order nor their number may change what becomes of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rlweave.graph.ir import Call, Node
from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, positions
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.movement import Leak, Movement
from rlweave.testing.checks.recording import Leaf, Step, pairs, same_array
from rlweave.testing.checks.subject import Situation, Subject


def batch_independence(subject: Subject) -> Iterator[Finding]:
    """One row is sampled anew; no result may move in another row, unless its graph function declares `mixes_batch`."""
    for situation in subject.situations():
        for index in (1, situation.sizes["B"] - 1):
            changed = situation.with_index(Along.BATCH, index)
            if not changed:
                continue
            movement = Movement(Along.BATCH, situation.sizes)
            for leak in movement.leaks(situation.base, situation.run(changed), index):
                yield Finding(
                    "batch independence",
                    leak.step.where,
                    f"{situation.where}: row {index} of {listed(changed)} was sampled anew, "
                    f"and {moved_part(leak, 'row')} moved",
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
            if _meets_on_purpose(before.node) or _moves(before, after, situation, excused):
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


def _meets_on_purpose(node: Node) -> bool:
    """Whether it may tell rows apart: they meet, it keeps something of each, or it names an axis the batch."""
    return isinstance(node, Call) and bool(node.mixes_batch or node.writes or node.relabels)


def _moves(before: Step, after: Step, situation: Situation, excused: set[int]) -> bool:
    """Whether a node got something else than reversed rows."""
    if any(not same_array(array, after.read[path]) for path, array in before.read.items()):
        return True
    return any(
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

"""The number of rows in a batch changes nothing for any of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.graph.ir import Call, Node
from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, kept
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Leaf
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.testing.checks.trail import called, first_difference

#: The rows that stay.
FEWER = 2


def batch_size(subject: Subject) -> Iterator[Finding]:
    """All rows but two are left away; the results of these two stay, unless rows are said to meet."""
    for situation in subject.situations():
        if situation.is_open(Along.BATCH) and not situation.draws:
            yield from list(_other_results(situation))[:1]


def _other_results(situation: Situation) -> Iterator[Finding]:
    def part(space: Box, array: np.ndarray) -> np.ndarray | None:
        return kept(space, array, Along.BATCH, lambda rows: rows < FEWER, situation.sizes)

    def part_of(leaf: Leaf) -> np.ndarray | None:
        return part(leaf.space, leaf.array)

    if any(_meets_on_purpose(step.node) for step in situation.base.steps):
        return
    given = {path: np.asarray(array) for path, array in situation.flat.items()}
    fewer = {path: part(space, given[path]) for path, space in situation.inputs.items()}
    one, other = situation.base, situation.run({path: array for path, array in fewer.items() if array is not None})
    for result, space in situation.outputs.items():
        expected = part(space, one.result[result]) if result in one.result else None
        if expected is not None and (
            expected.shape != other.result[result].shape or differs(expected, other.result[result], 1e-4).any()
        ):
            step = first_difference(one, other, part_of)
            yield Finding(
                "batch size",
                step.where if step is not None else situation.where,
                f"{situation.where}: of {situation.sizes['B']} rows {FEWER} were kept, and {called(result)} is another "
                "one for these",
                Cause.BATCH_SIZE_COUNTS,
                "divide by sizes of features, not of the batch: a row may not depend on how many there are",
            )


def _meets_on_purpose(node: Node) -> bool:
    return isinstance(node, Call) and bool(node.mixes_batch or node.writes)

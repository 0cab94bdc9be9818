"""Batches of other sizes: a row alone gives what it gives among others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlweave.errors import RlweaveError
from rlweave.spaces import Box, Dim
from rlweave.testing.checks.axes import Along, differs
from rlweave.testing.checks.distributions import takes_many
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.randomness import draws
from rlweave.testing.checks.recording import Leaf, Recording, Step, same_array
from rlweave.testing.checks.rows import Movement
from rlweave.testing.checks.subject import Situation, Subject

_FIX = (
    "let nothing depend on the length of axis 0: average by ops.mean where a loss is made, and nowhere else; keep axes "
    "of length 1 (ops.squeeze(x, axis=-1)); reshape with -1 for the batch"
)


def batch_size(subject: Subject) -> Iterator[Finding]:
    """Batches of 1, 2 and 7 of the same rows, and of none, give each row what it gets in the batch of 5."""
    for situation in subject.situations():
        if not situation.open_inputs:
            continue
        last = situation.sizes["B"] - 1
        for rows in ([0], [last], [1, 0], [*range(last + 1), 0, 1]):
            found = _of_batch(situation, rows)
            if found is not None:
                yield found
                break
        else:
            if takes_many(situation) and _keeps_rows(situation.base):
                yield from _without_rows(situation)


def _of_batch(situation: Situation, rows: Sequence[int]) -> Finding | None:
    what = f"a batch of {len(rows)} row{'s' if len(rows) > 1 else ''}"
    try:
        recording = situation.run(situation.rows(rows))
    except RlweaveError as error:
        return _fails(situation, what, error.what)
    except Exception as error:
        return _fails(situation, what, f"{type(error).__name__}: {error}")
    return None if draws(situation) else _first_other(situation, recording, rows, what)


def _fails(situation: Situation, what: str, error: str) -> Finding:
    seen = f"{situation.where} with {what} of those that it takes five of: {error.splitlines()[0]}"
    return Finding("batch size", situation.place, seen, Cause.CANNOT_RUN, _FIX)


def _first_other(situation: Situation, recording: Recording, rows: Sequence[int], what: str) -> Finding | None:
    """The first node that gives the same rows something else."""
    excused: set[int] = set()
    for before, after in zip(situation.base.steps, recording.steps, strict=False):
        if before.node.label != after.node.label:
            return None
        got_the_same = before.reads_the_same(after) and all(
            id(leaf.value) not in excused and _is_alike(leaf, after.inputs[name], rows, situation) is not False
            for name, leaf in before.inputs.items()
        )
        for name, leaf in before.outputs.items():
            alike = _is_alike(leaf, after.outputs[name], rows, situation)
            if alike is True:
                continue
            excused.add(id(leaf.value))
            if alike is False and got_the_same and not before.may_mix and not _leaks(situation, before):
                at = f"its result {name!r}" if name else "its result"
                seen = f"{situation.where} with {what}: {at} differs from that of the same rows among five"
                return Finding("batch size", before.where, seen, Cause.BATCH_SIZE_COUNTS, _FIX)
    return None


def _leaks(situation: Situation, step: Step) -> bool:
    """Whether rows reach each other there, which another check finds."""
    changed = situation.with_index(Along.BATCH, 1)
    movement = Movement(Along.BATCH, situation.sizes)
    leaks = movement.leaks(situation.base, situation.run(changed), 1) if changed else iter(())
    return any(leak.step.node is step.node for leak in leaks)


def _is_alike(one: Leaf, other: Leaf, rows: Sequence[int], situation: Situation) -> bool | None:
    """Whether rows of an array are those of the other one; None where it has no rows, or unknown ones, and differs."""
    part = _taken(one.space, one.array, rows, situation)
    if part is None:
        return True if same_array(one.array, other.array) else None
    if part.shape != other.array.shape:
        return False
    return not bool(differs(part, other.array, 1e-4).any())


def _taken(space: Box, array: np.ndarray, rows: Sequence[int], situation: Situation) -> np.ndarray | None:
    found = [i for i, dim in enumerate(space.axes) if isinstance(dim, Dim) and "B" in dim.symbols]
    if len(found) != 1:
        return None
    dim = space.axes[found[0]]
    if dim == Dim(("B",)):
        return np.take(array, rows, found[0])
    if dim != Dim(("T", "B")):
        return None
    count = situation.sizes["B"]
    steps = range(array.shape[found[0]] // count)
    return np.take(array, [step * count + row for step in steps for row in rows], found[0])


def _keeps_rows(recording: Recording) -> bool:
    """Whether everything that is computed has rows that do not meet, so that there may be none."""
    return all(
        not step.written
        and not (step.declared is not None and step.declared.mixes_batch)
        and all(_has_rows(leaf.space) for leaf in step.outputs.values())
        for step in recording.steps
    )


def _has_rows(space: Box) -> bool:
    return any(isinstance(dim, Dim) and dim == Dim(("B",)) for dim in space.axes)


def _without_rows(situation: Situation) -> Iterator[Finding]:
    what = "a batch without rows"
    try:
        result = situation.run(situation.rows([])).result
    except RlweaveError as error:
        yield _fails(situation, what, error.what)
        return
    except Exception as error:
        yield _fails(situation, what, f"{type(error).__name__}: {error}")
        return
    for path, space in situation.outputs.items():
        if path in result and result[path].shape != space.concrete_shape({**situation.sizes, "B": 0}):
            seen = f"{situation.where} with {what}: the result {path!r} has the shape {result[path].shape}"
            where = situation.base.steps[-1].where if situation.base.steps else situation.where
            yield Finding("batch size", where, seen, Cause.BATCH_SIZE_COUNTS, _FIX)

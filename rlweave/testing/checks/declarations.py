"""Declarations: what a graph function says of rows and steps is so, and what it does it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from rlweave.errors import RlweaveError
from rlweave.graph.decorators import GraphFunction
from rlweave.graph.ir import Call
from rlweave.testing.checks.axes import Along, differs, moved, positions, replaced
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Step, run_alone, same_array
from rlweave.testing.checks.rows import batch_independence, causality
from rlweave.testing.checks.subject import Situation, Subject

#: What a function does without saying so.
_CAUSES = {Along.BATCH: Cause.ROWS_MEET, Along.TIME: Cause.LOOKS_AHEAD}
_NAMES = {Along.BATCH: "mixes_batch", Along.TIME: "looks_ahead"}


def declarations_made(subject: Subject) -> Iterator[Finding]:
    """Each graph function that declares nothing, alone: a row (step) of its inputs reaches no other (no earlier) one.

    Where rows met before on purpose, all rows of what follows move in a call as a whole.
    """
    for situation in subject.situations():
        others = situation.run(situation.flat_others).steps
        for step, other in zip(situation.base.steps, others, strict=False):
            if other.node.label != step.node.label:
                break
            for along in Along:
                if _is_bound(step, along) and any(_spreads(situation, step, other, (along,), few=True)):
                    unit, which = ("row", "another one") if along is Along.BATCH else ("step", "an earlier one")
                    yield Finding(
                        "declarations made",
                        step.where,
                        f"a {unit} of its inputs was that of another call, and {which} of its results moved",
                        _CAUSES[along],
                        f"let each {unit} be for itself; where they are meant to meet, declare "
                        f"@graph_fn({_NAMES[along]}=True)",
                    )


def _is_bound(step: Step, along: Along) -> bool:
    """Whether a function has to keep rows (or steps) apart, and can be run alone."""
    call = step.declared
    if call is None or call.host or call.relabels or call.mixes_batch or step.written or step.drew:
        return False
    return along is Along.BATCH or not call.looks_ahead


def declarations_needed(subject: Subject) -> Iterator[Finding]:
    """Rows and steps are sampled anew one by one; where none moves another one, it needs no declaration that it may."""
    for along in Along:
        needed: set[str] = set()
        reached: dict[str, tuple[Situation, int]] = {}
        for situation in subject.situations():
            declared = {i: step for i, step in enumerate(situation.base.steps) if _declares(step, along)}
            for place, index, spreads in _looks(situation, declared, along):
                if spreads:
                    needed.add(place)
                else:
                    reached.setdefault(place, (situation, index))
        for place, (situation, index) in reached.items():
            if place not in needed and not _is_asked_for(situation, index, along):
                yield _unneeded(place, along)


def _declares(step: Step, along: Along) -> bool:
    call = step.declared
    if call is None or step.written or step.drew:  # what it keeps, or draws for all, is for all rows
        return False
    return call.mixes_batch if along is Along.BATCH else call.looks_ahead


def _looks(situation: Situation, declared: dict[int, Step], along: Along) -> Iterator[tuple[str, int, bool]]:
    """For each change that reaches a node that declares something: its place and number, and whether it spreads there.

    The node runs alone, and one row (or step) of its inputs at a time is that of another call. What mixes rows may mix
    steps, too; and where no episode ends nothing is cut.
    """
    if not declared:
        return
    others = situation.run(situation.flat_others).steps
    for index, step in declared.items():
        if index < len(others) and others[index].node.label == step.node.label:
            axes = (Along.BATCH, Along.TIME) if along is Along.BATCH else (Along.TIME,)
            for spreads in _spreads(situation, step, others[index], axes):
                yield step.where, index, spreads
                if spreads:
                    break


def _spreads(
    situation: Situation, step: Step, other: Step, axes: tuple[Along, ...], few: bool = False
) -> Iterator[bool]:
    """For each row (or step) of another call that reaches the inputs of a node: whether others (earlier ones) move.

    Args:
        situation: The call.
        step: The node.
        other: The node in the other call.
        axes: Batch and time; the first one tells what is asked for.
        few: Two rows (or steps) are enough.
    """
    along = axes[0]
    executor, sizes = situation.subject.eager, situation.sizes
    flags = {n: np.full_like(x.array, "mask" in n) for n, x in step.inputs.items() if x.array.dtype.kind == "b"}
    for axis in axes:
        for kept in ({}, flags) if flags else ({},):
            base = {**{name: leaf.array for name, leaf in step.inputs.items()}, **kept}
            before = run_alone(executor, step, kept)
            for changed in _changes(step, other, axis, sizes, few):
                after = run_alone(executor, step, {**changed, **kept})
                reached: set[int] = set()
                for name, array in changed.items():
                    if name not in kept:
                        reached |= moved(step.inputs[name].space, base[name], array, axis, sizes) or set()
                found: set[int] = set()
                for name, leaf in step.outputs.items():
                    found |= moved(leaf.space, before[name], after[name], axis, sizes, tolerance=1e-4) or set()
                spreads = (
                    bool(found - reached) if axis is Along.BATCH else any(t < min(reached, default=0) for t in found)
                )
                if reached and (spreads or axis is along):
                    yield spreads


def _changes(
    step: Step, other: Step, axis: Along, sizes: Mapping[str, int], few: bool
) -> Iterator[dict[str, np.ndarray]]:
    """Inputs with one row (or step) of those of another call: all of them, and one by one."""
    alike = [name for name, leaf in step.inputs.items() if other.inputs[name].array.shape == leaf.array.shape]
    for names in (alike, *([name] for name in alike)):
        size = sizes[axis.value]
        for index in sorted({1, size - 1} & set(range(size))) if few else range(size):
            changed = {}
            for name in names:
                leaf = step.inputs[name]
                array = replaced(leaf.space, leaf.array, other.inputs[name].array, axis, index, sizes)
                if not same_array(array, leaf.array):
                    changed[name] = array
            if changed:
                yield changed


# -- without the declaration -------------------------------------------------------------------------------------


def _is_asked_for(situation: Situation, index: int, along: Along) -> bool:
    """Whether a build or a check would refuse it without the declaration, or replicas would compute another number."""
    node = situation.base.steps[index].node
    assert isinstance(node, Call)
    if along is Along.BATCH and not _is_mean(situation, index):
        return True
    with _undeclared(node, along):
        try:
            subject = Subject(situation.subject.descriptor)
            check = batch_independence if along is Along.BATCH else causality
            return any(True for _ in check(subject))
        except RlweaveError:
            return True


@contextmanager
def _undeclared(node: Call, along: Along) -> Iterator[None]:
    members = [member for cls in type(node.component).__mro__ for member in vars(cls).values()]
    functions = [m for m in members if isinstance(m, GraphFunction) and m.function is node.function]
    try:
        for function in functions:
            setattr(function, _NAMES[along], False)
        yield
    finally:
        for function in functions:
            setattr(function, _NAMES[along], True)


def _is_mean(situation: Situation, index: int) -> bool:
    """Whether results without rows, of a batch of four, are the means of those of its halves."""
    outputs = situation.base.steps[index].outputs
    without = [
        name
        for name, leaf in outputs.items()
        if positions(leaf.space, leaf.array.shape, Along.BATCH, situation.sizes) is None
    ]
    if not without:
        return True
    if not situation.open_inputs:
        return False
    whole, one, other = (situation.run(situation.rows(rows)).steps[index] for rows in ([0, 1, 2, 3], [0, 1], [2, 3]))
    for name in without:
        arrays = [step.outputs[name].array for step in (whole, one, other)]
        if arrays[0].shape != arrays[1].shape or same_array(arrays[1], arrays[2]):
            return False
        if differs(arrays[0], (arrays[1] + arrays[2]) / 2.0, 1e-4).any():
            return False
    return True


def _unneeded(place: str, along: Along) -> Finding:
    name = _NAMES[along]
    unit = "row" if along is Along.BATCH else "step"
    return Finding(
        "declarations needed",
        place,
        f"it declares {name}, and no {unit} that was sampled anew moved "
        + ("another one" if along is Along.BATCH else "an earlier one"),
        Cause.UNNEEDED_DECLARATION,
        f"leave out {name}=True: with it, checks do not look at what the function does to other {unit}s"
        + (", and replicas wait for the whole batch" if along is Along.BATCH else ""),
    )

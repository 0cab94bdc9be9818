"""Padding: rows and steps that a mask takes out change nothing, and results are those of the batch without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlweave.graph.ir import RANDOM_PATHS
from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, kept, positions
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Leaf, Recording, Step
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called, first_difference
from rlweave.testing.checks.trajectory import Arrays, Trajectory, trajectories

_FIX = (
    "replace what is padding before it is used, and average over what counts: "
    'ops.sum(ops.where(mask, x, 0.0)) / ops.maximum(ops.sum(ops.astype(mask, "float32")), 1.0)'
)


@dataclass(frozen=True)
class _Mask:
    """What counts: (T, B), or (1, B) without a time axis.

    Args:
        path: Of the mask.
        counted: True where a step counts.
        sizes: Sizes of the ranks.
        timed: Whether the mask has a time axis.
    """

    path: str
    counted: np.ndarray
    sizes: Mapping[str, int]
    timed: bool

    def padding(self, space: Box, shape: tuple[int, ...]) -> np.ndarray | bool:
        """The entries of an array that are padding, to broadcast; none where it has no rows."""
        rows = positions(space, shape, Along.BATCH, self.sizes)
        steps = positions(space, shape, Along.TIME, self.sizes) if self.timed else np.zeros((1,) * len(shape), int)
        if rows is None:
            return False
        if steps is None or steps.max(initial=0) >= len(self.counted):
            return np.logical_not(np.asarray(self.counted.any(axis=0))[rows])
        return np.logical_not(self.counted[np.asarray(steps), rows])

    def counts(self, space: Box, shape: tuple[int, ...]) -> np.ndarray | bool:
        """The other entries."""
        return np.logical_not(self.padding(space, shape))


def padding(subject: Subject) -> Iterator[Finding]:
    """What a mask takes out is sampled anew, and left away; nothing that counts may move. All may be padding."""
    for trajectory in trajectories(subject.situations()):
        for path in trajectory.named(Meaning.MASK):
            space = trajectory.situation.inputs[path]
            if not space.has_batch_rank or space.feature_shape:
                continue
            yield from list(_sampled_anew(trajectory, path))[:1]
            yield from list(_left_away(trajectory, path))[:1]
            yield from list(_all_masked(trajectory, path))[:1]


def _sampled_anew(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    mask = _mask(trajectory, path, rows=(1,), odd_rows_short=True)
    arrays = _masked(trajectory, mask)
    one = trajectory.run(arrays)
    for draw in (1, 2):
        other = trajectory.run(_garbage(trajectory, arrays, mask, draw))
        for name, moved in _moved(trajectory, mask, one, other):
            step = next(iter(Trail(one, other, mask.counts).to(name)), None) if name in one.result else None
            yield _finding(trajectory, step or _writer(one, other, moved), f"{_done(mask)} were sampled anew", moved)


def _mask(trajectory: Trajectory, path: str, rows: tuple[int, ...] = (), odd_rows_short: bool = False) -> _Mask:
    timed, sizes = trajectory.timed(path), trajectory.situation.sizes
    counted = np.ones((trajectory.length if timed else 1, sizes["B"]), bool)
    if odd_rows_short and timed:
        counted[-1, 1::2] = False
        counted[:, -1] = False
    counted[:, [row for row in rows if row < counted.shape[1]]] = False
    return _Mask(path, counted, sizes, timed)


def _masked(trajectory: Trajectory, mask: _Mask) -> Arrays:
    calm, space = trajectory.calm, trajectory.situation.inputs[mask.path]
    array = calm[mask.path]
    counts = np.broadcast_to(mask.counts(space, array.shape), array.shape)
    return {**calm, mask.path: counts.astype(array.dtype)}


def _garbage(trajectory: Trajectory, arrays: Arrays, mask: _Mask, draw: int) -> Arrays:
    """The arrays with all that is padding sampled anew."""
    found, others = dict(arrays), trajectory.samples(draw)
    for path, space in trajectory.situation.inputs.items():
        if path != mask.path and trajectory.meanings[path] is not Meaning.EPISODE_START:
            padded = mask.padding(space, arrays[path].shape)
            found[path] = np.asarray(np.where(padded, others[path], arrays[path]), arrays[path].dtype)
    return found


def _moved(trajectory: Trajectory, mask: _Mask, one: Recording, other: Recording) -> Iterator[tuple[str, str]]:
    """Results and variables that differ where something counts: by name, and in words."""
    carried = trajectory.carried_on.values()
    for name, space in trajectory.situation.outputs.items():
        if name in one.result and name not in carried:
            before, after = one.result[name], other.result[name]
            if (differs(before, after, 1e-4) & mask.counts(space, before.shape)).any():
                yield name, called(name)
    for name, before in one.state.items():
        if name not in RANDOM_PATHS and differs(before, other.state[name], 1e-4).any():
            yield f"variable {name}", name


def _writer(one: Recording, other: Recording, variable: str) -> Step | None:
    return next((step for step in one.steps if variable in step.written), None)


def _done(mask: _Mask) -> str:
    return f"the {'steps' if mask.timed else 'rows'} that {mask.path!r} takes out"


def _finding(trajectory: Trajectory, step: Step | None, done: str, moved: str) -> Finding:
    return trajectory.situation.finding(
        "padding",
        step,
        f"{done}, and {moved} moved",
        Cause.PADDING_COUNTS,
        _FIX,
    )


def _left_away(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    """The batch without padding: fewer rows, then fewer steps."""
    situation = trajectory.situation
    if situation.draws:
        return
    for along, left_away in ((Along.BATCH, (1, 3)), (Along.TIME, (trajectory.length - 1,))):
        if not _is_open(trajectory, along) or (along is Along.TIME and not trajectory.timed(path)):
            continue
        mask = _mask(trajectory, path, rows=left_away if along is Along.BATCH else ())
        if along is Along.TIME:
            mask.counted[-1] = False
        arrays = _masked(trajectory, mask)
        parts = {name: _part(s, arrays[name], along, left_away, mask.sizes) for name, s in situation.inputs.items()}
        one, other = trajectory.run(arrays), situation.run(parts)

        def part(leaf: Leaf, along: Along = along, left_away: tuple[int, ...] = left_away) -> np.ndarray:
            return _part(leaf.space, leaf.array, along, left_away, situation.sizes)

        for name, space in situation.outputs.items():
            if name in one.result and name not in trajectory.carried_on.values():
                expected = _part(space, one.result[name], along, left_away, mask.sizes)
                if expected.shape != other.result[name].shape or differs(expected, other.result[name], 1e-4).any():
                    step = first_difference(one, other, part)
                    yield _finding(trajectory, step, f"{_done(mask)} were left away", called(name))
        for name, before in one.state.items():
            if before.shape == other.state[name].shape and differs(before, other.state[name], 1e-4).any():
                yield _finding(trajectory, _writer(one, other, name), f"{_done(mask)} were left away", name)


def _is_open(trajectory: Trajectory, along: Along) -> bool:
    """Whether there may be fewer rows or steps; what belongs to the last step keeps the steps."""
    stays = along is Along.TIME and bool(trajectory.named(Meaning.LAST, Meaning.LAST_START, Meaning.STATE))
    return trajectory.situation.is_open(along) and not stays


def _part(
    space: Box, array: np.ndarray, along: Along, left_away: tuple[int, ...], sizes: Mapping[str, int]
) -> np.ndarray:
    """An array without some rows or steps."""
    part = kept(space, array, along, lambda numbers: ~np.isin(numbers, left_away), sizes)
    return array if part is None else part


def _all_masked(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    mask = _mask(trajectory, path, rows=tuple(range(trajectory.situation.sizes["B"])))
    recording = trajectory.run(_masked(trajectory, mask))
    for step in recording.steps:
        for leaf in step.outputs.values():
            if leaf.array.dtype.kind == "f" and not np.isfinite(leaf.array).all():
                yield trajectory.situation.finding(
                    "padding",
                    step,
                    f"{path!r} takes everything out, and a result is not finite",
                    Cause.NOT_FINITE,
                    "divide by ops.maximum(count, 1.0)",
                )

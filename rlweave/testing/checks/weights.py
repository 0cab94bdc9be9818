"""Weights of samples: each multiplies the share of its own sample, after everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rlweave.testing.checks.axes import Along, replaced
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Recording
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called
from rlweave.testing.checks.trajectory import Arrays, Trajectory, trajectories

_FIX = (
    "multiply the loss of each sample by its weight, after squares and Huber losses, and before the mean: "
    "ops.mean(weights * losses)"
)
#: By what results may be divided: 1, the sum of the weights, the largest one.
_DIVISORS: tuple[Callable[[np.ndarray], float], ...] = (
    lambda weights: 1.0,
    lambda weights: float(weights.sum()),
    lambda weights: float(weights.max()),
)


def weights(subject: Subject) -> Iterator[Finding]:
    """A result of two mixed weightings has to be the mixed results; a sample of weight 0 may not count."""
    for trajectory in trajectories(subject.situations()):
        for path in trajectory.named(Meaning.WEIGHTS):
            array, space = trajectory.calm[path], trajectory.situation.inputs[path]
            if array.dtype.kind == "f" and space.has_batch_rank and not space.feature_shape:
                yield from list(_not_linear(trajectory, path))[:1] or list(_of_another_row(trajectory, path))[:1]


def _not_linear(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    one, two = (np.abs(array) + 0.1 for array in (trajectory.calm[path], trajectory.samples(1)[path]))
    given = [one, two, (one + two) / 2]
    runs = [trajectory.run({**trajectory.calm, path: array}) for array in given]
    for result in trajectory.float_results:
        f, g, mixed = (run.result[result].astype(np.float64) for run in runs)
        size = np.max(np.abs(f - g), initial=0.0)
        if size <= 1e-4 * np.max(np.abs(f), initial=0.0) + 1e-7:
            continue
        by_weights = [[divisor(array) for array in given] for divisor in _DIVISORS]
        errors = [np.max(np.abs(mixed * 2 * c - f * a - g * b)) / (2 * c) for a, b, c in by_weights]
        if min(errors) > 1e-3 * size + 1e-5 * np.max(np.abs(f)):
            yield _finding(
                trajectory,
                runs[0],
                runs[1],
                path,
                result,
                "two weightings and their mean were tried",
                "is not linear in",
            )


def _of_another_row(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    """One row alone has a weight; the other rows do not move what is proportional to the weights."""
    calm, situation = trajectory.calm, trajectory.situation
    positive = {**calm, path: np.asarray((np.abs(calm[path]) + 0.1) / 2, calm[path].dtype)}
    nothing, twice = ({**positive, path: factor * positive[path]} for factor in (0.0, 2.0))
    none, once, double = (trajectory.run(arrays).result for arrays in (nothing, positive, twice))
    for result in trajectory.float_results:
        scalar = once[result].ndim == 0 and bool(once[result])
        if not scalar or none[result] != 0.0 or not np.isclose(double[result], 2 * once[result], rtol=1e-4):
            continue
        for row in (0, situation.sizes["B"] - 1):
            alone = dict(positive)
            alone[path] = replaced(
                situation.inputs[path], nothing[path], positive[path], Along.BATCH, row, situation.sizes
            )
            before, after = trajectory.run(alone), trajectory.run(_others_renewed(trajectory, alone, path, row))
            if trajectory.differ(result, before, after) and not before.mixes_batch:
                done = f"only row {row} has a weight, the others were sampled anew"
                yield _finding(trajectory, before, after, path, result, done, "moved, in spite of")


def _others_renewed(trajectory: Trajectory, arrays: Arrays, path: str, row: int) -> Arrays:
    situation, others = trajectory.situation, trajectory.samples(1)
    changed = dict(arrays)
    for name, space in situation.inputs.items():
        if name != path and trajectory.meanings[name] is not Meaning.MASK and space.has_batch_rank:
            changed[name] = replaced(space, others[name], arrays[name], Along.BATCH, row, situation.sizes)
    return changed


def _finding(
    trajectory: Trajectory, one: Recording, other: Recording, path: str, result: str, done: str, seen: str
) -> Finding:
    steps = Trail(one, other).to(result)
    looking = [step for step in steps if path in step.inputs]
    step = next(iter(looking or steps), None)
    return trajectory.situation.finding(
        "weights",
        step,
        f"{done}, and {called(result)} {seen} {path!r}",
        Cause.WEIGHT_NOT_LINEAR,
        _FIX,
    )

"""Losses: they fall where the policy and the value function become better, and every row counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.testing.checks.axes import Along, differs, replaced
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Recording
from rlweave.testing.checks.rows import listed
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called
from rlweave.testing.checks.trajectory import Arrays, Trajectory, trajectories


def losses(subject: Subject) -> Iterator[Finding]:
    """Entropies rise, good actions become likelier, values come to their targets: the loss may not rise; rows count."""
    for trajectory in trajectories(subject.situations()):
        for result in _losses_of(trajectory):
            yield from _signs(trajectory, result)
            wrong_sign = list(_advantage_sign(trajectory, result))
            yield from wrong_sign or _clipped_wrong_side(trajectory, result)
            yield from _value_sign(trajectory, result)
            yield from _rows_left_out(trajectory, result)


def _losses_of(trajectory: Trajectory) -> list[str]:
    """Scalars that are losses by their name, or the first result of a method that is a loss by its name."""
    result = trajectory.run(trajectory.calm).result
    scalars = [path for path in trajectory.float_results if result[path].ndim == 0]
    named = "loss" in trajectory.situation.method
    return [path for path in scalars if path.split("/")[-1] == "loss" or (named and path in ("", "0"))]


def _finding(
    trajectory: Trajectory, one: Recording, other: Recording, result: str, seen: str, cause: Cause, fix: str
) -> Finding:
    step = next(iter(Trail(one, other).to(result)), None)
    where = step.where if step is not None else trajectory.situation.where
    return Finding("losses", where, f"{trajectory.situation.where}: {seen}", cause, fix)


def _rises(one: Recording, other: Recording, result: str) -> bool:
    before, after = one.result[result], other.result[result]
    return bool(differs(before, after, 1e-5) & (after > before))


#: What moves a loss one way: how the loss moves where the sign is off and this rises, the cause, and the fix.
_SIGNS = {
    Meaning.ENTROPIES: (
        "rose",
        Cause.ENTROPY_SIGN,
        "subtract the entropy bonus from a loss: loss - entropy_coefficient * ops.mean(entropies)",
    ),
    Meaning.DIVERGENCES: (
        "fell",
        Cause.LOSS_SIGN,
        "add the divergence to a loss: loss + kl_coefficient * ops.mean(kl)",
    ),
}


def _signs(trajectory: Trajectory, result: str) -> Iterator[Finding]:
    """Entropies and divergences rise, and the loss moves the wrong way."""
    calm = trajectory.calm
    for meaning, (wrong, cause, fix) in _SIGNS.items():
        for path in trajectory.named(meaning):
            one, other = trajectory.run(calm), trajectory.run({**calm, path: calm[path] + np.float32(1.0)})
            moved = _rises(one, other, result) if wrong == "rose" else _rises(other, one, result)
            if calm[path].dtype.kind == "f" and moved:
                seen = f"all of {path!r} rose by 1, and {called(result)} {wrong}"
                yield _finding(trajectory, one, other, result, seen, cause, fix)


def _clipped_wrong_side(trajectory: Trajectory, result: str) -> Iterator[Finding]:
    """A good action that has become unlikely, or a bad one that has become likely: the loss says so."""
    calm = trajectory.calm
    meanings = (Meaning.TARGET_LOG_PROBS, Meaning.BEHAVIOUR_LOG_PROBS, Meaning.ADVANTAGES)
    found = [trajectory.named(meaning) for meaning in meanings]
    if [len(paths) for paths in found] != [1, 1, 1] or len({calm[paths[0]].shape for paths in found}) > 1:
        return
    log_probs, behaviour, advantages = (paths[0] for paths in found)
    for sign, what in ((1.0, "largest"), (-1.0, "least")):
        best = sign * calm[advantages] == (sign * calm[advantages]).max(initial=-np.inf)
        if not best.any() or sign * calm[advantages][best][0] <= 0:
            continue
        gone = {**calm, log_probs: calm[behaviour] - np.float32(sign) * best.astype(np.float32)}
        back = {**gone, log_probs: gone[log_probs] + np.float32(0.2 * sign) * best.astype(np.float32)}
        one, other = trajectory.run(gone), trajectory.run(back)
        if not _rises(other, one, result):
            moved = "less" if sign > 0 else "more"
            yield _finding(
                trajectory,
                one,
                trajectory.run({**back, advantages: calm[advantages] + np.float32(1.0)}),
                result,
                f"the action of the {what} of {advantages!r} was {moved} likely than by {behaviour!r}, came back some "
                f"way, and {called(result)} did not fall",
                Cause.CLIPPED_WRONG_SIDE,
                "take the worse of both: -ops.mean(ops.minimum(ratio * advantages, clipped * advantages)), which is "
                "the maximum of the losses",
            )
            return


def _advantage_sign(trajectory: Trajectory, result: str) -> Iterator[Finding]:
    calm = trajectory.calm
    log_probs, advantages = trajectory.named(Meaning.TARGET_LOG_PROBS), trajectory.named(Meaning.ADVANTAGES)
    if len(log_probs) != 1 or len(advantages) != 1 or calm[log_probs[0]].shape != calm[advantages[0]].shape:
        return
    scaled = {**calm, advantages[0]: calm[advantages[0]] * np.float32(100.0)}
    best = scaled[advantages[0]] == scaled[advantages[0]].max()
    if not best.any() or scaled[advantages[0]].max() <= 0:
        return
    for rise in (0.05, 0.5):
        likelier = {**scaled, log_probs[0]: scaled[log_probs[0]] + np.float32(rise) * best.astype(np.float32)}
        one, other = trajectory.run(scaled), trajectory.run(likelier)
        if _rises(one, other, result):
            yield _finding(
                trajectory,
                one,
                other,
                result,
                f"the action of the largest of {advantages[0]!r} became likelier, and {called(result)} rose",
                Cause.LOSS_SIGN,
                "a loss is minimized: -ops.mean(log_probs * advantages), -ops.mean(ratio * advantages)",
            )
            return


def _value_sign(trajectory: Trajectory, result: str) -> Iterator[Finding]:
    calm = trajectory.calm
    values = trajectory.named(Meaning.VALUES, Meaning.PREDICTIONS)
    targets = trajectory.named(Meaning.RETURNS)
    if len(values) != 1 or len(targets) != 1 or calm[values[0]].dtype.kind != "f":
        return
    wanted, shape = calm[targets[0]], calm[values[0]].shape
    if wanted.shape != shape[: wanted.ndim]:
        return
    reached = np.broadcast_to(wanted.reshape(wanted.shape + (1,) * (len(shape) - wanted.ndim)), shape).astype("float32")
    one, other = (trajectory.run({**calm, values[0]: reached + np.float32(shift)}) for shift in (30.0, 0.0))
    if _rises(one, other, result):
        yield _finding(
            trajectory,
            one,
            other,
            result,
            f"{values[0]!r} came to {targets[0]!r} from 30 above, and {called(result)} rose",
            Cause.LOSS_SIGN,
            "add the loss of values: loss + value_coefficient * ops.mean(ops.square(values - returns))",
        )


def _rows_left_out(trajectory: Trajectory, result: str) -> Iterator[Finding]:
    situation, calm = trajectory.situation, trajectory.calm
    spaces = situation.inputs
    names = [path for path in spaces if spaces[path].has_batch_rank]
    changing = [path for path in names if trajectory.meanings[path] not in (Meaning.MASK, Meaning.WEIGHTS)]

    def renewed(row: int, draw: int = 1) -> Arrays:
        others, sizes = trajectory.samples(draw), situation.sizes
        new = {path: replaced(spaces[path], calm[path], others[path], Along.BATCH, row, sizes) for path in changing}
        return {**calm, **new}

    rows = range(situation.sizes["B"]) if names else ()
    still = [row for row in rows if not trajectory.moving([result], calm, lambda draw, row=row: renewed(row, draw))]  # type: ignore[misc]
    if still and len(still) < len(rows):  # where no row counts, a variable may be at 0
        stop = next(iter(Trail(trajectory.run(calm), trajectory.run(renewed(still[0]))).stops()), None)
        yield situation.finding(
            "losses",
            stop,
            f"row {still[0]} of {listed(names)} was sampled anew, and {called(result)} did not move",
            Cause.ROWS_LEFT_OUT,
            "let every row count: average over the whole batch axis",
        )

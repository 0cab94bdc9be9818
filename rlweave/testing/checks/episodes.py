"""Episodes: nothing crosses the border between two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlweave.testing.checks.axes import Along, moved
from rlweave.testing.checks.bootstrapping import FIXES
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Recording, Step
from rlweave.testing.checks.rows import listed
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, blamed, called, in_steps
from rlweave.testing.checks.trajectory import Arrays, Trajectory, When, only, trajectories

#: Results whose share of each episode adds up.
_SUMS = ("", "0")


@dataclass(frozen=True)
class _Border:
    """A flag at one step, and the arrays with it set.

    Args:
        flag: Path of the flag.
        step: Where it is set.
        first: The first step of the next episode.
        arrays: All inputs.
    """

    flag: str
    step: int
    first: int
    arrays: Arrays

    def before(self, step: int) -> bool:
        return step < self.first

    def after(self, step: int) -> bool:
        return step >= self.first


def episode_boundaries(subject: Subject) -> Iterator[Finding]:
    """An episode ends, and what is on one side is sampled anew; no result may move on the other side."""
    for trajectory in trajectories(subject.situations()):
        for flag in (path for path in trajectory.ends if trajectory.timed(path)):
            found = list(_crossings(trajectory, flag, start=False))
            # without rewards, and where the flag of one step more is passed, it may tell of the state before the step
            either = not trajectory.named(Meaning.REWARDS) or trajectory.named(Meaning.LAST_START)
            if found and (not either or list(_crossings(trajectory, flag, start=True))):
                yield found[0]
        for flag in trajectory.named(Meaning.EPISODE_START, time=True):
            yield from list(_crossings(trajectory, flag, start=True))[:1]
        for flag in trajectory.named(Meaning.EPISODE_START, time=False):
            yield from _not_reset(trajectory, flag)
            yield from _remembers(trajectory, flag)


def _crossings(trajectory: Trajectory, flag: str, start: bool) -> Iterator[Finding]:
    counted = _counted(trajectory, flag)
    for step in range(trajectory.length):
        arrays = trajectory.flagged(trajectory.calm, flag, only(step))
        border = _Border(flag, step, step if start else step + 1, arrays)
        base = trajectory.run(arrays)
        for changed_side, kept_side in ((border.after, border.before), (border.before, border.after)):
            changed = trajectory.run(trajectory.renewed(arrays, changed_side))
            for result in counted:
                moved = {t for t in trajectory.steps_moved(result, base, changed) if kept_side(t)}
                where = _blame(trajectory, border, base, changed, result, kept_side) if moved else None
                if where is not None:
                    yield _crossing(trajectory, border, result, moved, changed_side, where)
        for result in counted:
            if result in _SUMS or "loss" in result:
                yield from _mixed(trajectory, border, result)


def _counted(trajectory: Trajectory, flag: str) -> list[str]:
    """The results that have to do with episodes."""
    carries = trajectory.named(Meaning.STATE, Meaning.EPISODE_START)
    starts = trajectory.meanings[flag] is Meaning.EPISODE_START or not trajectory.named(Meaning.REWARDS)
    return trajectory.float_results if carries and starts else trajectory.returns


def _blame(
    trajectory: Trajectory, border: _Border, one: Recording, other: Recording, result: str, side: When
) -> Step | None:
    """The node at fault; None where rows meet on purpose before anything goes wrong."""
    kept = in_steps(side, trajectory.situation.sizes)
    counts = kept if result in trajectory.time_results else None
    steps = Trail(one, other, counts).to(result)
    mixing = [i for i, step in enumerate(steps) if step.declared is not None and step.declared.mixes_batch]
    if mixing:
        steps = Trail(one, other, kept).among(steps[: mixing[0]])
    return blamed(steps, [border.arrays[border.flag]])


def _crossing(
    trajectory: Trajectory, border: _Border, result: str, moved: set[int], changed_side: When, where: Step
) -> Finding:
    later = changed_side == border.after
    cause = _cause(trajectory, border, result, later)
    part = f"after step {border.first - 1}" if later else f"before step {border.first}"
    return Finding(
        "episode boundaries",
        where.where,
        f"{trajectory.situation.where}: {border.flag!r} is set at step {border.step}, all {part} was sampled anew, and "
        f"{called(result)} moved in step{'s' if len(moved) > 1 else ''} {', '.join(map(str, sorted(moved)))}",
        cause,
        FIXES[cause],
    )


def _cause(trajectory: Trajectory, border: _Border, result: str, later: bool) -> Cause:
    rewards = trajectory.named(Meaning.REWARDS)
    if not later:
        carries = trajectory.named(Meaning.STATE, Meaning.EPISODE_START)
        sums = trajectory.meanings[border.flag] is not Meaning.EPISODE_START and trajectory.adds_to_state
        return Cause.STATE_NOT_RESET if carries and not sums else Cause.CROSSES_EPISODES
    if not rewards:
        return Cause.CROSSES_EPISODES
    base = trajectory.run(border.arrays)
    changed = trajectory.run(trajectory.renewed(border.arrays, border.after, rewards))
    if any(border.before(t) for t in trajectory.steps_moved(result, base, changed)):
        return Cause.CROSSES_EPISODES
    return Cause.WRONG_BOOTSTRAP if trajectory.meanings[border.flag] is Meaning.TRUNCATED else Cause.TERMINATION_IGNORED


def _mixed(trajectory: Trajectory, border: _Border, result: str) -> Iterator[Finding]:
    """Two episodes add to a loss, each for itself: what one adds does not depend on the other."""
    arrays = border.arrays
    early = trajectory.renewed(arrays, border.before)
    late, both = trajectory.renewed(arrays, border.after), trajectory.renewed(early, border.after)
    runs = [trajectory.run(given) for given in (arrays, early, late, both)]
    if result in trajectory.time_results or runs[0].result[result].ndim or runs[0].mixes_batch:
        return
    f, f_early, f_late, f_both = (float(run.result[result]) for run in runs)
    size = max(abs(f_early - f), abs(f_late - f), abs(f_both - f))
    if abs(f - f_early - f_late + f_both) <= 1e-3 * size + 1e-5 * max(abs(f), abs(f_both)):
        return
    sizes = trajectory.situation.sizes
    steps = Trail(runs[0], runs[2]).to(result)
    where = blamed(Trail(runs[0], runs[2], in_steps(border.before, sizes)).among(steps) or steps, [arrays[border.flag]])
    cause = Cause.CROSSES_EPISODES
    if trajectory.meanings[border.flag] is Meaning.EPISODE_START:
        cause = Cause.STATE_NOT_RESET
    yield trajectory.situation.finding(
        "episode boundaries",
        where,
        f"{border.flag!r} is set at step {border.step}, and what the steps before that "
        f"border add to {called(result)} depends on the steps after it, or the other way round",
        cause,
        FIXES[cause],
    )


def _not_reset(trajectory: Trajectory, flag: str) -> Iterator[Finding]:
    """Single steps: where an episode starts, what was carried there does not count."""
    states = trajectory.named(Meaning.STATE)
    arrays = trajectory.flagged(trajectory.calm, flag)
    base, changed = trajectory.run(arrays), trajectory.run(trajectory.all_renewed(arrays, states))
    for result in trajectory.float_results:
        if states and trajectory.differ(result, base, changed):
            where = blamed(Trail(base, changed).to(result), [arrays[flag]])
            yield trajectory.situation.finding(
                "episode boundaries",
                where,
                f"{flag!r} is set in all rows, {listed(states)} was sampled anew, and {called(result)} moved",
                Cause.STATE_NOT_RESET,
                FIXES[Cause.STATE_NOT_RESET],
            )
            return


def _remembers(trajectory: Trajectory, flag: str) -> Iterator[Finding]:
    """The same of a state that variables hold, a row for each environment."""
    situation = trajectory.situation
    arrays = trajectory.flagged(trajectory.calm, flag)
    base = situation.run(arrays)
    sizes, subject = situation.sizes, situation.subject
    written = {path for step in base.steps for path in step.written}
    for path in sorted(written - subject.trainable):
        before = situation.state[path]
        readers = [step for step in base.steps if path in step.read]
        if before.dtype.kind != "f" or before.shape[:1] != arrays[flag].shape[:1] or not readers:
            continue
        other = np.array(before)
        other[1:2] += 1
        changed = situation.run(arrays, {**situation.state, path: other})
        for result in trajectory.float_results:
            space = situation.outputs[result]
            rows = moved(space, base.result[result], changed.result[result], Along.BATCH, sizes, tolerance=1e-4)
            if rows == frozenset({1}):
                yield Finding(
                    "episode boundaries",
                    readers[0].where,
                    f"{situation.where}: {flag!r} is set in all rows, variable {path} got other numbers in row 1, and "
                    f"{called(result)} moved in that row",
                    Cause.STATE_NOT_RESET,
                    FIXES[Cause.STATE_NOT_RESET],
                )
                return

"""What carries a state: a trajectory in two fragments gives what it gives in one, and episodes begin as they should."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, kept
from rlweave.testing.checks.bootstrapping import FIXES
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Leaf, Recording
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called, first_difference, takes
from rlweave.testing.checks.trajectory import Arrays, Trajectory, only, trajectories

_FIX = (
    "let the state that is returned be that after the last step, and begin from the state that is passed: "
    "scan(step, state, inputs)"
)


def fragments(subject: Subject) -> Iterator[Finding]:
    """A trajectory is cut in two, and the second part begins with the state after the first; results stay the same."""
    for trajectory in trajectories(subject.situations()):
        situation = trajectory.situation
        if not trajectory.carried_on or situation.draws or trajectory.run(trajectory.calm).writes:
            continue
        if trajectory.length > 1 and _can_be_cut(trajectory):
            for cut in range(1, trajectory.length):
                for given in (trajectory.calm, {p: np.asarray(x) for p, x in situation.flat.items()}):
                    yield from list(_compared(trajectory, given, cut))[:1]
            yield from list(_counts_from_zero(trajectory))[:1]
        yield from _initial_state(subject, trajectory)


def _can_be_cut(trajectory: Trajectory) -> bool:
    """Whether all that has a time axis has one entry for each step, and as many as one likes."""
    spaces = trajectory.situation.inputs
    timed = [path for path in spaces if trajectory.timed(path)]
    fixed = any("T=" in str(dim) for path in timed for dim in spaces[path].axes)
    lengths = {int(steps.max()) + 1 for path in timed if (steps := trajectory.steps_of(path)) is not None}
    return not fixed and lengths == {trajectory.length} and not trajectory.named(Meaning.LAST)


def _compared(trajectory: Trajectory, arrays: Arrays, cut: int) -> Iterator[Finding]:
    situation = trajectory.situation
    whole = situation.run(arrays)
    first = situation.run(_steps_of(trajectory, arrays, before=True, cut=cut))
    states = {path: first.result[result] for path, result in trajectory.carried_on.items()}
    second = situation.run({**_steps_of(trajectory, arrays, before=False, cut=cut), **states})
    for result in trajectory.time_results:
        for run, before in ((first, True), (second, False)):
            expected = _part(trajectory, situation.outputs[result], whole.result[result], before, cut)
            if expected is not None and _other(expected, run.result[result]):
                part = f"the steps {'before' if before else 'from'} {cut} {'' if before else 'on '}alone"
                yield _finding(trajectory, whole, run, f"{called(result)} is another one of {part}", before, cut)
    for path, result in trajectory.carried_on.items():
        if _other(whole.result[result], second.result[result]):
            seen = f"{called(result)}, carried on from {path!r}, is another one in two parts, cut before step {cut}"
            yield _finding(trajectory, whole, second, seen, False, cut)


def _other(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or bool(differs(one, other, 1e-4).any())


def _steps_of(trajectory: Trajectory, arrays: Arrays, before: bool, cut: int) -> Arrays:
    found = dict(arrays)
    for path, space in trajectory.situation.inputs.items():
        part = _part(trajectory, space, arrays[path], before, cut)
        found[path] = arrays[path] if part is None else part
    return found


def _part(trajectory: Trajectory, space: Box, array: np.ndarray, before: bool, cut: int) -> np.ndarray | None:
    return kept(space, array, Along.TIME, lambda steps: (steps < cut) == before, trajectory.situation.sizes)


def _finding(trajectory: Trajectory, whole: Recording, part: Recording, seen: str, before: bool, cut: int) -> Finding:
    def part_of(leaf: Leaf) -> np.ndarray | None:
        return _part(trajectory, leaf.space, leaf.array, before, cut)

    step = first_difference(whole, part, part_of)
    return trajectory.situation.finding(
        "fragments",
        step,
        seen,
        Cause.FRAGMENTS_DIFFER,
        _FIX,
    )


def _counts_from_zero(trajectory: Trajectory) -> Iterator[Finding]:
    """What counts or sums the steps of an episode begins each with nothing."""
    calm, states = trajectory.calm, list(trajectory.carried_on)
    if not trajectory.adds_to_state:
        return
    results = [*trajectory.time_results, *trajectory.carried_on.values()]
    for flag in (path for path in trajectory.ends if trajectory.timed(path)):
        flagged = trajectory.flagged(calm, flag, only(0))
        whole = trajectory.run(flagged)
        nothing = {path: np.zeros_like(calm[path]) for path in states}
        second = trajectory.situation.run({**_steps_of(trajectory, flagged, before=False, cut=1), **nothing})
        if trajectory.steps_moved(results[0], whole, trajectory.run({**flagged, **nothing})) - {0}:
            return  # it goes on, which is another fault
        for result in trajectory.time_results:
            expected = _part(trajectory, trajectory.situation.outputs[result], whole.result[result], False, 1)
            if expected is not None and _other(expected, second.result[result]):
                step = next((step for step in whole.steps if takes(step, [flagged[flag]])), None)
                yield trajectory.situation.finding(
                    "fragments",
                    step,
                    f"{flag!r} is set at step 0, and {called(result)} of the steps after "
                    "it is another one than where they begin with a state of zeros",
                    Cause.COUNTED_TWICE,
                    "begin what an episode counts or sums up with 0: ops.where(ended, 0.0, total) after its last step",
                )


def _initial_state(subject: Subject, trajectory: Trajectory) -> Iterator[Finding]:
    """Where an episode starts, the state is the one that `initial_state` gives."""
    given = next((s for s in subject.situations() if s.method == "initial_state"), None)
    starts = trajectory.named(Meaning.EPISODE_START)
    if given is None or not starts or given.draws:
        return
    rows = given.base.result
    states = sorted(trajectory.carried_on)
    prefix = _shared(states)
    initial = dict(trajectory.calm)
    for path in states:
        name = path.removeprefix(prefix).lstrip("/")
        if name not in rows or rows[name].shape[1:] != initial[path].shape[1:] or not len(rows[name]):
            return
        initial[path] = np.broadcast_to(rows[name][:1], initial[path].shape).astype(initial[path].dtype)
    one = trajectory.run(initial)
    other = trajectory.run(trajectory.flagged(trajectory.calm, starts[0], lambda step: step == 0))
    for result in trajectory.float_results:
        if trajectory.differ(result, one, other):
            step = next(iter(Trail(one, other).to(result)), None)
            yield trajectory.situation.finding(
                "fragments",
                step,
                f"{called(result)} is another one where {starts[0]!r} is set than "
                "from the state that initial_state gives",
                Cause.STATE_NOT_RESET,
                FIXES[Cause.STATE_NOT_RESET],
            )
            return


def _shared(states: list[str]) -> str:
    """The name of the parameter that holds the states."""
    return states[0].split("/")[0]

"""Returns: the value after an end counts where it should, and only there; each step has its own reward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.rows import listed
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, blamed, called
from rlweave.testing.checks.trajectory import Arrays, Trajectory, When, only, trajectories

FIXES = {
    Cause.CROSSES_EPISODES: "end sums where an episode does, terminated or truncated: decay = ops.where("
    "ops.logical_or(terminated, truncated), 0.0, discount * lambda_)",
    Cause.STATE_NOT_RESET: "begin a step that starts an episode from the initial state: "
    "ops.where(episode_start[:, None], 0.0, state), at every step of a sequence",
    Cause.TERMINATION_IGNORED: "leave out the value after a terminal state: ops.where(terminated, 0.0, next_values); "
    "`terminated` wins where `truncated` is set, too",
    Cause.TRUNCATION_AS_TERMINATION: "bootstrap where an episode is cut, and after the last step: only `terminated` "
    "takes the next value away",
    Cause.WRONG_BOOTSTRAP: "bootstrap from the state that the step led to: next_values[t], of the final observation; "
    "where an episode ended, values[t + 1] is of the next episode",
}


def terminal_states(subject: Subject) -> Iterator[Finding]:
    """A step terminates, and what is of the state after it is sampled anew; no return may move."""
    for trajectory in trajectories(subject.situations()):
        for flag in trajectory.ends:
            if trajectory.meanings[flag] is not Meaning.TRUNCATED:
                yield from list(_values_after_terminal(trajectory, flag))[:1]


def _values_after_terminal(trajectory: Trajectory, flag: str) -> Iterator[Finding]:
    timed = trajectory.timed(flag)
    results = trajectory.returns
    for step in range(trajectory.length) if timed else (0,):
        at = only(step) if timed else (lambda t: True)
        terminated = trajectory.flagged(trajectory.calm, flag, at)
        both = terminated
        for truncated in trajectory.named(Meaning.TRUNCATED, time=timed):
            both = {**both, truncated: trajectory.flagged(trajectory.calm, truncated, at)[truncated]}
        for arrays in (terminated, both):
            changed, names = _after_renewed(trajectory, arrays, step, timed)
            if not names:
                return
            one, other = trajectory.run(arrays), trajectory.run(changed)
            for result in results:
                if trajectory.differ(result, one, other):
                    where = blamed(Trail(one, other).to(result), [arrays[flag]])
                    yield trajectory.situation.finding(
                        "terminal states",
                        where,
                        f"{flag!r} is set {f'at step {step}' if timed else 'in all rows'}"
                        f"{' as well as truncation' if arrays is not terminated else ''}, {listed(names)} of it was "
                        f"sampled anew, and {called(result)} moved",
                        Cause.TERMINATION_IGNORED,
                        FIXES[Cause.TERMINATION_IGNORED],
                    )


def _after_renewed(
    trajectory: Trajectory, arrays: Arrays, step: int, timed: bool, draw: int = 1
) -> tuple[Arrays, list[str]]:
    """The arrays with what is of the state after a step sampled anew, and which these are."""
    names = trajectory.named(Meaning.NEXT, Meaning.FINAL, time=timed)
    if not timed:
        return trajectory.all_renewed(arrays, names, draw), names
    changed = trajectory.renewed(arrays, only(step), names, draw)
    if step == trajectory.length - 1:
        last = trajectory.named(Meaning.LAST)
        changed, names = trajectory.renewed(changed, lambda t: t > step, last, draw), [*names, *last]
    return changed, names


def bootstrapping(subject: Subject) -> Iterator[Finding]:
    """An episode is cut, or the arrays end, and what is of the state after it is sampled anew; returns must move."""
    for trajectory in trajectories(subject.situations()):
        for flag in trajectory.named(Meaning.TRUNCATED):
            yield from list(_cut_without_value(trajectory, flag))[:1]
        yield from _only_compared(trajectory)
        yield from list(_last_without_value(trajectory))[:1]


def _cut_without_value(trajectory: Trajectory, flag: str) -> Iterator[Finding]:
    timed, calm = trajectory.timed(flag), trajectory.calm
    names = trajectory.named(Meaning.NEXT, Meaning.FINAL, time=timed)
    results = trajectory.returns
    if not names:
        if timed:
            yield from _alike(trajectory, flag, results)
        return
    if not trajectory.named(Meaning.FINAL):
        results = sorted(trajectory.moving(results, calm, lambda draw: trajectory.all_renewed(calm, names, draw)))
    for step in range(trajectory.length) if timed else (0,):
        at = only(step) if timed else (lambda t: True)
        arrays = trajectory.flagged(calm, flag, at)

        def renewed(draw: int, arrays: Arrays = arrays, step: int = step) -> Arrays:
            return _after_renewed(trajectory, arrays, step, timed, draw)[0]

        moving = trajectory.moving(results, arrays, renewed)
        for result in (result for result in results if result not in moving):
            done = f"{flag!r} is set {f'at step {step}' if timed else 'in all rows'}, {listed(names)} of it"
            yield _not_bootstrapped(trajectory, arrays, renewed(1), done, result, at, arrays[flag])


def _not_bootstrapped(
    trajectory: Trajectory,
    arrays: Arrays,
    changed: Arrays,
    done: str,
    result: str,
    at: When,
    flag: np.ndarray | None = None,
) -> Finding:
    """A result that does not depend on the value that it should bootstrap from."""
    cause = Cause.TRUNCATION_AS_TERMINATION
    for terminal in (path for path in trajectory.ends if trajectory.meanings[path] is not Meaning.TRUNCATED):
        ended = trajectory.run(trajectory.flagged(arrays, terminal, at))
        if trajectory.differ(result, trajectory.run(arrays), ended):  # so something else is in its place
            cause = Cause.WRONG_BOOTSTRAP
    steps = Trail(trajectory.run(arrays), trajectory.run(changed)).stops()
    where = blamed(steps, [] if flag is None else [flag])
    return trajectory.situation.finding(
        "bootstrapping",
        where,
        f"{done} was sampled anew, and {called(result)} did not move",
        cause,
        FIXES[cause],
    )


def _alike(trajectory: Trajectory, flag: str, results: list[str]) -> Iterator[Finding]:
    """With values, and none of final observations, a cut episode cannot be told from one that terminated."""
    terminated = trajectory.named(Meaning.TERMINATED, time=True)
    values, calm = trajectory.named(Meaning.VALUES, time=True), trajectory.calm
    if not terminated or not values or trajectory.length < 2:
        return
    later = trajectory.run(trajectory.renewed(calm, lambda t: t >= 1, values))
    bootstrapped = [r for r in trajectory.time_results if 0 in trajectory.steps_moved(r, trajectory.run(calm), later)]
    cut = trajectory.run(trajectory.flagged(calm, flag, lambda t: t == 0))
    ended = trajectory.run(trajectory.flagged(calm, terminated[0], lambda t: t == 0))
    for result in set(results) & set(bootstrapped):
        if not trajectory.differ(result, cut, ended):
            where = blamed(Trail(trajectory.run(calm), cut).to(result), [])
            yield trajectory.situation.finding(
                "bootstrapping",
                where,
                f"{called(result)} is the same with {flag!r} and with {terminated[0]!r} "
                f"set at step 0, and no value of the state after it is passed",
                Cause.TRUNCATION_AS_TERMINATION,
                "take next_values, those of the final observations where an episode is cut, and bootstrap from them; "
                "only `terminated` takes the next value away",
            )


def _last_without_value(trajectory: Trajectory) -> Iterator[Finding]:
    """The arrays end within an episode."""
    calm, last = trajectory.calm, trajectory.length - 1
    if not trajectory.named(Meaning.REWARDS, time=True) or not any(map(trajectory.timed, trajectory.ends)):
        return
    names = trajectory.named(Meaning.NEXT, time=True) + trajectory.named(Meaning.LAST)
    results = [result for result in trajectory.returns if result in trajectory.time_results]
    results = sorted(trajectory.moving(results, calm, lambda draw: trajectory.all_renewed(calm, names, draw)))

    def renewed(draw: int) -> Arrays:
        return _after_renewed(trajectory, calm, last, True, draw)[0]

    moving = trajectory.moving(results, calm, renewed) if names else set()
    for result in results:
        if result not in moving:
            done = f"no episode ends, {listed(names)} of the last step"
            yield _not_bootstrapped(trajectory, calm, renewed(1), done, result, only(last))


def own_steps(subject: Subject) -> Iterator[Finding]:
    """The reward, discount or probability of one step is sampled anew; the return of that very step has to move."""
    for trajectory in trajectories(subject.situations()):
        if not trajectory.ends or not trajectory.named(Meaning.REWARDS, time=True):
            continue
        kinds = [Meaning.REWARDS, Meaning.DISCOUNTS]
        q_values = any("q_" in path for path in trajectory.meanings)
        if trajectory.named(Meaning.VALUES) and not q_values:  # the trace of Retrace begins one step later
            kinds += [Meaning.TARGET_LOG_PROBS, Meaning.BEHAVIOUR_LOG_PROBS]
        for path in trajectory.named(*kinds, time=True):
            yield from list(_without_its_own(trajectory, path))[:1]


def _without_its_own(trajectory: Trajectory, path: str) -> Iterator[Finding]:
    calm, results = trajectory.calm, [r for r in trajectory.returns if r in trajectory.time_results]
    results = sorted(trajectory.moving(results, calm, lambda draw: trajectory.all_renewed(calm, [path], draw)))
    last = trajectory.length - (1 if trajectory.meanings[path] is Meaning.DISCOUNTS else 0)
    for step in range(last):
        missing, base = set(results), trajectory.run(calm)
        for draw in range(1, 4):
            changed = trajectory.run(trajectory.renewed(calm, only(step), [path], draw))
            missing -= {r for r in missing if step in trajectory.steps_moved(r, base, changed)}
        for result in sorted(missing):
            steps = Trail(base, changed)
            where = next(iter(steps.to(result) or steps.stops()), None)
            yield trajectory.situation.finding(
                "own steps",
                where,
                f"step {step} of {path!r} was sampled anew, and step {step} of "
                f"{called(result).removeprefix('its ')} did not move, as other steps do",
                Cause.WRONG_STEP,
                f"row t of a return uses row t of {path!r}: the step from state s_t; see where an index is off by one",
            )


def _only_compared(trajectory: Trajectory) -> Iterator[Finding]:
    """Values by a target network are doubled, which keeps their order; a result has to move."""
    calm, results = trajectory.calm, trajectory.float_results
    for path in trajectory.named(Meaning.NEXT):
        name = path.rpartition("/")[2]
        if not name.startswith("target_") or calm[path].dtype.kind != "f" or not trajectory.named(Meaning.REWARDS):
            continue
        one, other = trajectory.run(calm), trajectory.run({**calm, path: calm[path] * np.float32(2.0)})
        counts = trajectory.moving(results, calm, lambda draw, path=path: trajectory.all_renewed(calm, [path], draw))  # type: ignore[misc]
        if counts and not any(trajectory.differ(result, one, other) for result in results):
            steps = Trail(one, trajectory.run(trajectory.all_renewed(calm, [path]))).to(sorted(counts)[0])
            yield Finding(
                "bootstrapping",
                steps[0].where if steps else trajectory.situation.where,
                f"{trajectory.situation.where}: all of {path!r} was doubled, and nothing moved; only which of them is "
                "the largest counts",
                Cause.WRONG_BOOTSTRAP,
                "choose the action by the network that learns, and take its value from the target network: "
                "ops.take_last(target_q_next, ops.argmax(online_q_next, -1))",
            )

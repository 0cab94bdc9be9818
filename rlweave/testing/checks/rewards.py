"""Sums of rewards: of large rewards they are as right as of small ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Recording
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called
from rlweave.testing.checks.trajectory import Trajectory, trajectories

_SMALL, _LARGE = (0.1, 0.2, 0.3), (100.0, 200.0)


def large_rewards_count(subject: Subject) -> Iterator[Finding]:
    """What sums up rewards in proportion to small ones goes on to do so with large ones."""
    for trajectory in trajectories(subject.situations()):
        if trajectory.adds_to_state:
            for path in trajectory.named(Meaning.REWARDS, time=True):
                for sign in (1.0, -1.0):
                    yield from list(_clipped(trajectory, path, sign))[:1]


def _clipped(trajectory: Trajectory, path: str, sign: float) -> Iterator[Finding]:
    if not _allows(trajectory, path, sign * max(_LARGE)):
        return
    small = [_with(trajectory, path, sign * size) for size in _SMALL]
    large = [_with(trajectory, path, sign * size) for size in _LARGE]
    for result in trajectory.time_results:
        first, second, third = (run.result[result] for run in small)
        linear = differs(first, second, 1e-4).any() and not differs(second - first, third - second, 1e-4).any()
        if linear and not differs(large[0].result[result], large[1].result[result], 1e-4).any():
            step = next(iter(Trail(small[0], small[1]).to(result)), None)
            yield Finding(
                "large rewards",
                step.where if step is not None else trajectory.situation.where,
                f"{trajectory.situation.where}: {called(result)} is the same with {path!r} of {sign * _LARGE[0]:g} and "
                f"of {sign * _LARGE[1]:g}, and grows in proportion to small ones",
                Cause.REWARD_IGNORED,
                "sum up what the environment gave; clip only what the loss is computed of. Where the sum of clipped "
                "rewards is meant, name the cause in `intended` of the descriptor",
            )


def _with(trajectory: Trajectory, path: str, reward: float) -> Recording:
    calm = trajectory.calm
    return trajectory.run({**calm, path: np.full_like(calm[path], reward)})


def _allows(trajectory: Trajectory, path: str, reward: float) -> bool:
    space = trajectory.situation.inputs[path]
    if space.low is None or space.high is None or trajectory.calm[path].dtype.kind != "f":
        return False
    return bool(np.all(space.low <= reward) and np.all(reward <= space.high))

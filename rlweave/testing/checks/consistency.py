"""Returns of values that are exactly right: whatever the discount is, each value comes out again, or an advantage of 0.

Values and rewards are made so that `V(s_t) = r_t + g V(s_{t+1})`. Returns of any number of steps, lambda-returns and
V-trace targets are then the values, advantages and TD errors are 0, for any importance ratio. The discount g is that of
the last step. And sums of rewards are as right of large rewards as of small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning
from rlweave.testing.checks.recording import Recording
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail, called
from rlweave.testing.checks.trajectory import Arrays, Trajectory, trajectories

_FIX = (
    "every step further is discounted once more, the value at the end as often as the rewards before it are in number: "
    "r_t + g r_{t+1} + g^2 V(s_{t+2}); V(s_t) and V(s_{t+1}) are those of rows t and t + 1"
)
#: Small, as some clip rewards.
_SIZE = 0.3


@dataclass(frozen=True)
class _Inputs:
    """Paths of the inputs, (T, B) each but the last, which is (B,)."""

    rewards: str
    values: str | None
    following: str | None
    last: str | None


def consistency(subject: Subject) -> Iterator[Finding]:
    """Values are those of the rewards; returns have to be these values, and advantages 0."""
    for trajectory in trajectories(subject.situations()):
        inputs = _inputs(trajectory)
        if inputs is None or trajectory.run(trajectory.calm).mixes_batch:
            continue
        discount = _discount(trajectory, inputs)
        if discount is not None:
            yield from list(_inconsistent(trajectory, inputs, discount))[:1]


def _inputs(trajectory: Trajectory) -> _Inputs | None:
    calm = trajectory.calm
    shape = (trajectory.length, trajectory.situation.sizes["B"])

    def the(meaning: Meaning, wanted: tuple[int, ...]) -> str | None:
        found = trajectory.named(meaning)
        fits = len(found) == 1 and calm[found[0]].shape == wanted and calm[found[0]].dtype.kind == "f"
        return found[0] if fits else None

    rewards, values = the(Meaning.REWARDS, shape), the(Meaning.VALUES, shape)
    following, last = the(Meaning.NEXT, shape), the(Meaning.LAST, shape[1:])
    known = following is not None or (values is not None and last is not None)
    others = trajectory.named(Meaning.FINAL, Meaning.LAST_START, Meaning.EPISODE_START)
    if rewards is None or not known or others or not any(map(trajectory.timed, trajectory.ends)):
        return None
    return _Inputs(rewards, values, following, last)


def _discount(trajectory: Trajectory, inputs: _Inputs) -> float | None:
    """g, by which the value after the last step counts; of discounts that are passed, what is left of it."""
    calm, last = trajectory.calm, trajectory.length - 1
    path = inputs.following or inputs.last
    assert path is not None
    bumped = {path: calm[path].copy(), inputs.rewards: calm[inputs.rewards].copy()}
    bumped[path][last if path == inputs.following else slice(None)] += np.float32(1.0)
    bumped[inputs.rewards][last] += np.float32(1.0)
    runs = [trajectory.run(arrays) for arrays in (calm, {**calm, path: bumped[path]})]
    paid = trajectory.run({**calm, inputs.rewards: bumped[inputs.rewards]})
    for result in _returns(trajectory, inputs):
        by_value = runs[1].result[result][last] - runs[0].result[result][last]
        by_reward = paid.result[result][last] - runs[0].result[result][last]
        if np.abs(by_reward).min(initial=np.inf) > 1e-2:
            discounts = by_value / by_reward / _passed(trajectory, calm)[last]
            if np.ptp(discounts) < 1e-2 and np.isfinite(discounts).all():
                return float(np.median(discounts))
    return None


def _passed(trajectory: Trajectory, arrays: Arrays) -> np.ndarray:
    """The discounts that are passed, (T, B); 1 without any."""
    shape = (trajectory.length, trajectory.situation.sizes["B"])
    found = trajectory.named(Meaning.DISCOUNTS, time=True)
    return np.broadcast_to(arrays[found[0]], shape) if found else np.ones(shape, np.float32)


def _returns(trajectory: Trajectory, inputs: _Inputs) -> list[str]:
    """The results that depend on rewards and on the values after them."""
    calm, shape = trajectory.calm, trajectory.calm[inputs.rewards].shape
    results = [r for r in trajectory.returns if trajectory.run(calm).result[r].shape == shape]
    names = [path for path in (inputs.following, inputs.last) if path is not None]
    moving = trajectory.moving(results, calm, lambda draw: trajectory.all_renewed(calm, names, draw))
    return [result for result in results if result in moving]


def _inconsistent(trajectory: Trajectory, inputs: _Inputs, discount: float) -> Iterator[Finding]:
    arrays, values = _consistent(trajectory, inputs, discount)
    recording = trajectory.run(arrays)
    for result in _returns(trajectory, inputs):
        found = recording.result[result]
        nothing = np.abs(found).mean() < np.abs(found - values).mean()
        wrong = ~np.isclose(found, 0.0 if nothing else values, rtol=0.0, atol=2e-3 * _SIZE)
        if not wrong.any():
            continue
        step, row = np.argwhere(wrong)[-1]
        steps = Trail(trajectory.run(trajectory.calm), recording).to(result)
        yield Finding(
            "consistency",
            steps[-1].where if steps else trajectory.situation.where,
            f"{trajectory.situation.where}: with rewards V(s_t) - g V(s_t+1), g = {discount:.4g}, {called(result)} in "
            f"step {step} is neither 0 nor V(s_t) = {values[step, row]:.4g}, but {found[step, row]:.4g}",
            Cause.INCONSISTENT_RETURNS,
            _FIX,
        )


def _consistent(trajectory: Trajectory, inputs: _Inputs, discount: float) -> tuple[Arrays, np.ndarray]:
    """Inputs that fit each other, and V(s_t); in some rows the first step terminates, in some the episode is cut."""
    length, rows = trajectory.calm[inputs.rewards].shape
    values = (_SIZE * np.random.default_rng(0).normal(size=(length + 1, rows))).astype(np.float32)
    following = values[1:].copy()
    arrays, over = dict(trajectory.calm), np.zeros((length, rows), bool)
    if length > 1:
        for number, flag in enumerate(path for path in trajectory.ends if trajectory.timed(path)):
            terminal = trajectory.meanings[flag] is not Meaning.TRUNCATED
            if not terminal and inputs.following is None:
                continue
            ended = np.zeros((length, rows), bool)
            ended[0, number + 1 :: 3] = True
            set_there = trajectory.flagged(arrays, flag, lambda step: step == 0)[flag]
            arrays[flag] = np.where(ended, set_there, arrays[flag]).astype(arrays[flag].dtype)
            following[ended] = np.float32(2 * _SIZE)  # of another state than the one of the next row
            over |= ended & terminal
    rewards = values[:-1] - discount * _passed(trajectory, arrays) * np.where(over, 0.0, following)
    given = {inputs.rewards: rewards, inputs.values: values[:-1], inputs.following: following, inputs.last: values[-1]}
    arrays |= {path: np.asarray(array, np.float32) for path, array in given.items() if path is not None}
    return arrays, values[:-1]


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
            yield trajectory.situation.finding(
                "large rewards",
                step,
                f"{called(result)} is the same with {path!r} of {sign * _LARGE[0]:g} and "
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

"""Results of vector steps, and the episodes that end in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlweave.envs.batching import Batch
from rlweave.envs.infos import InfoNumbers


class Episode(NamedTuple):
    """A finished episode.

    Attributes:
        env: Index of the sub-environment that played it.
        episode_return: Undiscounted sum of the environment's rewards, added up in float64.
        length: Number of environment steps; reset rows do not count.
        terminated: True if it ended in a terminal state, False if it was truncated only.
        info: Numbers of the last step's info that are to be metrics, by leaf.
    """

    env: int
    episode_return: float
    length: int
    terminated: bool
    info: InfoNumbers = ()


class EpisodeTracker:
    """Adds up rewards and steps per sub-environment and remembers the episodes that ended last.

    Args:
        num_envs: Number of sub-environments.
        window: Number of finished episodes that `recent` keeps.

    Attributes:
        steps: Environment steps so far, over all sub-environments.
        episodes: Finished episodes so far.
        recent: The last `window` finished episodes, oldest first.
    """

    def __init__(self, num_envs: int, window: int = 100) -> None:
        self.steps = 0
        self.episodes = 0
        self.recent: deque[Episode] = deque(maxlen=window)
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)

    @property
    def current_returns(self) -> npt.NDArray[np.float64]:
        """Return so far of the episode that each sub-environment is in, shape (num_envs,)."""
        return self._returns.copy()

    @property
    def current_lengths(self) -> npt.NDArray[np.int64]:
        """Steps so far of the episode that each sub-environment is in, shape (num_envs,)."""
        return self._lengths.copy()

    def abandon(self) -> None:
        """Drops the episodes in progress (all sub-environments were reset); finished ones stay."""
        self._returns[:] = 0.0
        self._lengths[:] = 0

    def update(
        self,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Episode, ...]:
        """Counts one vector step.

        Args:
            rewards: Rewards of the step, shape (num_envs,).
            terminated: Episodes that reached a terminal state, shape (num_envs,).
            truncated: Episodes that were cut, shape (num_envs,).
            valid: Rows that are real transitions, shape (num_envs,); None says that all are.

        Returns:
            The episodes that this step finished, in the order of their sub-environments.
        """
        if valid is None:
            self._returns += rewards
            self._lengths += 1
            self.steps += len(rewards)
            ended = terminated | truncated
        else:
            self._returns[valid] += rewards[valid]
            self._lengths[valid] += 1
            self.steps += int(np.count_nonzero(valid))
            ended = (terminated | truncated) & valid
        if not np.count_nonzero(ended):
            return ()
        finished = tuple(
            Episode(env, float(self._returns[env]), int(self._lengths[env]), bool(terminated[env]))
            for env in ended.nonzero()[0].tolist()
        )
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        self.episodes += len(finished)
        self.recent.extend(finished)
        return finished

    def mean_return(self) -> float:
        """Mean return of the recent episodes; NaN while none has finished."""
        return float(np.mean([episode.episode_return for episode in self.recent])) if self.recent else float("nan")

    def mean_length(self) -> float:
        """Mean length of the recent episodes; NaN while none has finished."""
        return float(np.mean([episode.length for episode in self.recent])) if self.recent else float("nan")


BoolArray = npt.NDArray[np.bool_]
Infos = Sequence[dict[str, Any]]


class StepResult(NamedTuple):
    """The result of one vector step. Row i belongs to sub-environment i.

    The transition of row i is (observation acted on, action, `rewards`, `terminated`, `truncated`,
    `next_observations`), if `valid`; the observation acted on is the one that `reset` or the step before returned.

    Attributes:
        observations: The observations to act on next, nested (num_envs, *shape). Where an episode ended, already the
            first observation of the next one. It may be the same array as `next_observations`: do not write into it.
        rewards: Rewards as the environment gave them, float32 (num_envs,).
        terminated: True where the episode reached a terminal state, bool (num_envs,).
        truncated: True where the episode was cut by something outside of the task, bool (num_envs,).
            Both may be True on one step.
        next_observations: The observations that the actions led to, nested (num_envs, *shape); where an episode
            ended, the final one, never a reset one. Bootstrap from these.
        valid: True where the row is a transition, bool (num_envs,). All True, except for a vector environment that
            was passed in, has NEXT_STEP autoreset and cannot reset single rows: see `GymnasiumVectorEnv`.
        episode_start: True where `observations` is the first of an episode, bool (num_envs,): recurrent state
            is reset there.
        infos: The environments' info dicts of these transitions.
        episodes: The episodes that this step finished.
    """

    observations: Batch
    rewards: npt.NDArray[np.float32]
    terminated: BoolArray
    truncated: BoolArray
    next_observations: Batch
    valid: BoolArray
    episode_start: BoolArray
    infos: Infos
    episodes: tuple[Episode, ...]


class Advance(NamedTuple):
    """The raw result of a step, which each kind of vector environment reports.

    Attributes:
        observations: As in `StepResult`; the very object `next_observations` where no row was reset.
        rewards: Rewards in the environment's precision, float64 (num_envs,).
        terminated: As in `StepResult`.
        truncated: As in `StepResult`.
        next_observations: As in `StepResult`.
        valid: As in `StepResult`; None says all rows are.
        episode_start: As in `StepResult`.
        infos: Infos of the transitions.
        current_infos: Infos that go with `observations`.
    """

    observations: Batch
    rewards: npt.NDArray[np.float64]
    terminated: BoolArray
    truncated: BoolArray
    next_observations: Batch
    valid: BoolArray | None
    episode_start: BoolArray
    infos: Infos
    current_infos: Infos

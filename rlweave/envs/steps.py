"""What a step of a vector environment gives: to whoever acts, and from each kind of environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlweave.envs.batching import Batch
from rlweave.envs.episodes import Episode

BoolArray = npt.NDArray[np.bool_]
Infos = Sequence[dict[str, Any]]


class StepResult(NamedTuple):
    """What one vector step gave. Row i belongs to sub-environment i.

    The transition of row i is (observation acted on, action, `rewards`, `terminated`, `truncated`,
    `next_observations`), if `valid`; the observation acted on is the one that `reset` or the step before returned.

    Attributes:
        observations: What to act on next, nested (num_envs, *shape). Where an episode ended, this is already the
            first observation of the next one. It may be the same array as `next_observations`: do not write into it.
        rewards: Rewards as the environment gave them, float32 (num_envs,).
        terminated: True where the episode reached a terminal state, bool (num_envs,).
        truncated: True where the episode was cut by something that is no part of the task, bool (num_envs,).
            Both may be True on one step.
        next_observations: The observations that the actions led to, nested (num_envs, *shape); where an episode
            ended, the final one, never a reset one. Bootstrap from these.
        valid: True where the row is a transition, bool (num_envs,). All True, except for a vector environment that
            was passed in, has NEXT_STEP autoreset and cannot reset single rows: see `GymnasiumVectorEnv`.
        episode_start: True where `observations` is the first of an episode, bool (num_envs,): recurrent state
            starts anew there.
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
    """What a kind of vector environment reports of a step.

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

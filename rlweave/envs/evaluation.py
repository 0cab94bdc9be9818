"""Evaluation that does not favour short episodes."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rlweave.envs.batching import Batch
from rlweave.envs.failures import environment_failure, step_phase
from rlweave.envs.seeding import EVALUATION_WORKER
from rlweave.envs.steps import Episode
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import ConfigError

Act = Callable[[Batch, npt.NDArray[np.bool_]], Batch]
"""Maps observations (num_envs, *shape) and episode starts (num_envs,) to actions (num_envs, *shape)."""


class EnvFactory(Protocol):
    """Makes the environment to evaluate on, for instance ``functools.partial(make_env, "CartPole-v1", 4)``."""

    def __call__(self, *, seed: int | None, worker: int) -> VectorEnv: ...


class Evaluation(NamedTuple):
    """The episodes of an evaluation.

    Attributes:
        episodes: The episodes, ordered by sub-environment, then time. Where several policies play, an episode's return
            is the mean over its agents, and its length that of the agent that acted most.
        policies: The parts of each policy's agents in these episodes, where several play.
    """

    episodes: tuple[Episode, ...]
    policies: Mapping[str, Evaluation] = types.MappingProxyType({})

    @property
    def returns(self) -> npt.NDArray[np.float64]:
        """Undiscounted returns, shape (episodes,)."""
        return np.array([episode.episode_return for episode in self.episodes], np.float64)

    @property
    def mean_infos(self) -> dict[str, float]:
        """Mean of each number of infos that the environments were asked for, over the episodes that have it."""
        values: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode.info:
                values.setdefault(name, []).append(value)
        return {name: float(np.mean(own)) for name, own in values.items()}

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Lengths in environment steps, shape (episodes,)."""
        return np.array([episode.length for episode in self.episodes], np.int64)

    @property
    def mean_return(self) -> float:
        """Mean of `returns`; NaN without episodes: a policy may have no agent in any of them."""
        return float(self.returns.mean()) if self.episodes else float("nan")

    @property
    def deviation(self) -> float:
        """Standard deviation of `returns`; NaN without episodes."""
        return float(self.returns.std()) if self.episodes else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean of `lengths`; NaN without episodes."""
        return float(self.lengths.mean()) if self.episodes else float("nan")


#: Far above the longest episodes of common environments.
MAX_EPISODE_STEPS = 100_000


def evaluate(
    act: Act,
    env_factory: EnvFactory,
    episodes: int,
    seed: int | None = None,
    *,
    max_episode_steps: int = MAX_EPISODE_STEPS,
) -> Evaluation:
    """Plays a number of episodes on a fresh environment and closes it.

    Each sub-environment plays a quota that is fixed beforehand. Taking the first `episodes` that end instead would
    favour short episodes: those of a sub-environment whose episodes are long would hardly be counted.

    Args:
        act: Maps ``(observations, episode_start)`` to actions. `episode_start`, bool (num_envs,), is where an
            observation is the first of its episode; a recurrent policy resets its state there, any other ignores it.
        env_factory: Called as ``env_factory(seed=seed, worker=EVALUATION_WORKER)``: no training worker's
            sub-environment has the seed of one that this makes, even if `seed` is that of the training.
        episodes: Number of episodes in all.
        seed: Seed of the evaluation; None takes fresh entropy.
        max_episode_steps: Steps after which an episode counts as endless, which is an error: a policy may
            never reach the end of an environment that has no time limit.

    Raises:
        ConfigError: If `episodes` or `max_episode_steps` is less than 1.
        EnvError: If an environment fails, or an episode that counts is longer than `max_episode_steps`.
    """
    if episodes < 1:
        raise ConfigError("there is nothing to evaluate", where="episodes", received=str(episodes), fix="at least 1")
    if max_episode_steps < 1:
        raise ConfigError(
            "an episode has a step", where="max_episode_steps", received=str(max_episode_steps), fix="at least 1"
        )
    with env_factory(seed=seed, worker=EVALUATION_WORKER) as env:
        quota, remainder = divmod(episodes, env.num_envs)
        quotas = [quota + (index < remainder) for index in range(env.num_envs)]
        played: list[list[Episode]] = [[] for _ in quotas]
        observations = env.reset()
        episode_start = np.ones(env.num_envs, np.bool_)
        missing = episodes
        while missing:
            result = env.step(act(observations, episode_start))
            for episode in result.episodes:
                if len(played[episode.env]) < quotas[episode.env]:
                    played[episode.env].append(episode)
                    missing -= 1
            if missing:
                _check_lengths(env, max_episode_steps, played, quotas)
            observations, episode_start = result.observations, result.episode_start
    return Evaluation(tuple(episode for one_env in played for episode in one_env))


def _check_lengths(env: VectorEnv, limit: int, played: list[list[Episode]], quotas: list[int]) -> None:
    """Raises an error if an episode that counts is endless."""
    lengths = env.tracker.current_lengths
    for index in (lengths >= limit).nonzero()[0].tolist():
        if len(played[index]) < quotas[index]:
            raise environment_failure(
                f"an episode of the evaluation has not ended after {limit:,} steps",
                env=index,
                phase=step_phase(int(lengths[index])),
                fix="give the environment a time limit, for instance max_episode_steps where it is registered",
            )

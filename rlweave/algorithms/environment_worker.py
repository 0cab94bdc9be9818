"""Workers that only step environments: they offer observations, and get the actions of a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import ShipsEnvironment, make_training_env
from rlweave.algorithms.worker import Worker
from rlweave.envs import StepResult, VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.flow import Episode
from rlweave.flow.codec import saved_as


@saved_as("offer")
@dataclasses.dataclass(slots=True)
class Offer:
    """What a worker's environments are to be acted on next, and the step that led there.

    Attributes:
        observations: Nested (B, ...): what is to be acted on.
        rewards: float32 (B,); None where all episodes begin with these observations, without a step before.
        terminated: As in `StepResult`, like all that follow.
        truncated: bool (B,).
        next_observations: Nested (B, ...); None where no episode ended, so that they are the observations.
        valid: bool (B,).
        episode_start: bool (B,).
    """

    observations: Any
    rewards: np.ndarray | None = None
    terminated: Any = None
    truncated: Any = None
    next_observations: Any = None
    valid: Any = None
    episode_start: Any = None

    @classmethod
    def of(cls, result: StepResult) -> Offer:
        """The offer after a step."""
        following = None if result.next_observations is result.observations else result.next_observations
        flags = result.terminated, result.truncated
        return cls(result.observations, result.rewards, *flags, following, result.valid, result.episode_start)

    def result(self) -> StepResult | None:
        """The step; None where there is none. Infos and episodes stay with the worker."""
        if self.rewards is None:
            return None
        following = self.observations if self.next_observations is None else self.next_observations
        step = self.rewards, self.terminated, self.truncated, following, self.valid, self.episode_start
        return StepResult(self.observations, *step, (), ())

    def state_dict(self) -> dict[str, Any]:
        """Its fields."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


class EnvironmentWorker(Worker):
    """Steps environments with actions that it is given; it has no policy, and imports no framework.

    Args:
        env: The environments.
        seed: From which seeds of replacements are derived.
    """

    takes_weights: ClassVar[bool] = False
    env: VectorEnv

    def __init__(self, env: VectorEnv, seed: int) -> None:
        super().__init__(env)
        self._seed = seed
        self._actions: Any = None
        self._begins = True

    def act(self, actions: Any, version: int) -> None:
        """Takes actions of the environment for the next step, nested (B, ...)."""
        self._actions = actions

    def sample(self) -> Offer:
        """The observations after the step with the given actions; the first ones of episodes that begin."""
        actions, self._actions = self._actions, None
        if not self.env.has_started:
            self.begin_episodes()
        if self._begins or actions is None:
            self._begins = False
            return Offer(self.env.observations)
        result = self.env.step(actions)
        self._episodes += [Episode(e.episode_return, e.length, info=e.info) for e in result.episodes]
        return Offer.of(result)

    def start(self, seed: int | None = None) -> None:
        self.begin_episodes(seed)

    def begin_episodes(self, seed: int | None = None) -> None:
        self.env.reset(seed)
        self._begins = True

    def replacing(self, number: int) -> None:
        """Begins with a seed of its own, as the replacement of `number` failed workers."""
        self.start(derived_seed(self._seed, f"replacement {number} of environment {self.env.first}"))

    def set_weights(self, weights: Any, version: int) -> None:
        """Does nothing: the server acts."""

    def _agent_state(self, weights: bool) -> dict[str, Any]:
        return {}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to load."""

    def _acting_state(self) -> dict[str, Any]:
        return {"begins": self._begins}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._begins = state["begins"]


class EnvironmentFactory(ShipsEnvironment):
    """Makes a worker in its process. The environments of all workers have the seeds that those of one worker have.

    Args:
        config: Settings of the training.
        number: Number of the worker.
    """

    makes = EnvironmentWorker

    def __init__(self, config: TrainConfig, number: int) -> None:
        self.config, self.number = config, number

    def __call__(self) -> EnvironmentWorker:
        """The worker."""
        env = make_training_env(self.config)
        env.first = self.number * env.num_envs
        return EnvironmentWorker(env, self.config.seed)

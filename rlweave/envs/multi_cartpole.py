"""Several independent cart-poles as one environment with PettingZoo's parallel API."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlweave.errors import ConfigError, EnvError

Observations = dict[str, npt.NDArray[np.float32]]
Infos = dict[str, dict[str, Any]]


class MultiCartPole:
    """One cart-pole per agent; each ends by itself, and the episode ends with the last of them.

    Physics, spaces, rewards and limits are those of Gymnasium's ``CartPole-v1``. An agent is terminated when its own
    pole falls or its cart leaves the track, and truncated at its own 500th step; then it is gone, and the others go on.

    It has PettingZoo's parallel API without needing PettingZoo.

    Args:
        num_agents: How many agents; they are called ``cart_0``, ``cart_1``, ...
        max_episode_steps: Steps after which an agent is truncated.

    Raises:
        ConfigError: If a number is less than 1.

    >>> env = MultiCartPole(num_agents=2)
    >>> observations, infos = env.reset(seed=0)
    >>> {agent: observation.shape for agent, observation in observations.items()}
    {'cart_0': (4,), 'cart_1': (4,)}
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "multi_cartpole_v0", "render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(self, num_agents: int = 4, max_episode_steps: int = 500) -> None:
        if num_agents < 1 or max_episode_steps < 1:
            raise ConfigError(
                "an episode has at least one agent and one step",
                where="MultiCartPole",
                received=f"num_agents={num_agents}, max_episode_steps={max_episode_steps}",
            )
        self.possible_agents = [f"cart_{index}" for index in range(num_agents)]
        self.agents: list[str] = []
        self.max_episode_steps = max_episode_steps
        self._poles = {agent: CartPoleEnv() for agent in self.possible_agents}
        self._steps = 0

    @property
    def unwrapped(self) -> MultiCartPole:
        """The environment itself."""
        return self

    @property
    def num_agents(self) -> int:
        """How many agents are still there."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """How many agents there are at the beginning of an episode."""
        return len(self.possible_agents)

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """The space of an agent's observations: position, velocity, angle, angular velocity."""
        return self._poles[agent].observation_space

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """The space of an agent's actions: push to the left, push to the right."""
        return self._poles[agent].action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Begins an episode with all agents.

        Args:
            seed: Seeds all poles, each differently; None goes on with their random streams.
            options: Ignored.

        Returns:
            Observations (4,) and empty infos, by agent.
        """
        self.agents = list(self.possible_agents)
        self._steps = 0
        seeds: list[int | None] = [None] * len(self.agents)
        if seed is not None:
            seeds = np.random.SeedSequence(seed).generate_state(len(self.agents), np.uint32).tolist()
        observations = {
            agent: self._poles[agent].reset(seed=own)[0] for agent, own in zip(self.agents, seeds, strict=True)
        }
        return observations, {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Moves the carts of all agents that are there.

        Args:
            actions: 0 or 1 for each agent that is there.

        Returns:
            Observations, rewards, terminated, truncated and infos of the agents that were there.

        Raises:
            EnvError: If an agent's action is missing.
        """
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise EnvError(
                f"agent {missing[0]!r} is there and got no action",
                where="MultiCartPole.step",
                received=f"actions of {sorted(actions)}",
                fix="give an action for each of `env.agents`",
            )
        self._steps += 1
        observations: Observations = {}
        rewards: dict[str, float] = {}
        terminated: dict[str, bool] = {}
        truncated: dict[str, bool] = {}
        for agent in self.agents:
            observations[agent], reward, terminated[agent], _, _ = self._poles[agent].step(actions[agent])
            rewards[agent] = float(reward)
            truncated[agent] = self._steps >= self.max_episode_steps
        infos: Infos = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        return observations, rewards, terminated, truncated, infos

    def render(self) -> None:
        """Draws nothing."""

    def close(self) -> None:
        """Closes the poles."""
        for pole in self._poles.values():
            pole.close()

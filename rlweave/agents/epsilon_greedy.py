"""Epsilon-greedy acting by a Q network: what DQN and PQN share."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.stepping import rows_of
from rlweave.components import DuelingPolicy, EpsilonGreedy, QPolicy
from rlweave.components.action_leaves import COUNTABLE
from rlweave.components.schedules import Schedule, make_schedule
from rlweave.graph import Component, api
from rlweave.spaces import Space


class EpsilonGreedyGraph(Component):
    """The acting of a component graph with a Q network; stands before the class that says how it learns."""

    policy: QPolicy | DuelingPolicy
    exploration: EpsilonGreedy

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks."""
        space: Space = self.policy.recurrent_space
        return space

    @api
    def act(self, observations: Any, epsilon: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Epsilon-greedy actions for observations (B, ...), and the recurrent state after the step."""
        q_values, after = self.q_values(observations, recurrent_state, episode_start)
        return self.exploration.select(q_values, epsilon), after

    @api
    def act_greedily(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Actions of the largest Q value, and the recurrent state after the step."""
        q_values, after = self.q_values(observations, recurrent_state, episode_start)
        return self.policy.greedy_of(q_values), after

    @api
    def q_values(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Q values (B, ..., actions), and the recurrent state after the step."""
        features, after = self.policy.features(observations, recurrent_state, episode_start)
        return self.policy.parameters_of(features, observations), after


class EpsilonGreedyAgent(Agent):
    """The agent's side of it; the setting `epsilon` is a share of random actions, or a schedule over its steps."""

    config: Any
    action_kinds = COUNTABLE
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily", "q_values")

    @property
    def epsilon(self) -> float:
        """The present share of random actions."""
        return float(self._epsilon(self.env_steps))

    @cached_property
    def _epsilon(self) -> Schedule:
        return make_schedule(self.config.epsilon)

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        if not explore:
            actions, after = self.acting.act_greedily(observations, *carried.values())
        else:
            epsilon = np.full(rows_of(observations), self.epsilon, np.float32)
            actions, after = self.acting.act(observations, epsilon, *carried.values())
        return actions, carried, after

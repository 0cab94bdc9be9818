"""PQN whose environments are in the graph: rollout, targets and all epochs are one compiled call."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.fused_on_policy import FusedOnPolicyAgent, FusedOnPolicyGraph
from rlweave.agents.pqn import PQN, PQNGraph
from rlweave.components.exploration import EpsilonOfSteps
from rlweave.components.schedules import Schedule, make_schedule
from rlweave.graph import Component, api, shared
from rlweave.spaces import Space


class ActsBySteps(Component):
    """Acts epsilon-greedily in all environments, epsilon by the steps that it counts.

    Args:
        of: The graph with the Q network and the exploration.
        epsilon: Share of random actions over environment steps.
        num_envs: Environments.
        scope: Name within the owner.
    """

    def __init__(self, of: PQNGraph, epsilon: Schedule, num_envs: int, scope: str = "acting") -> None:
        super().__init__(scope)
        self.policy, self.exploration = shared(of.policy), shared(of.exploration)
        self.epsilon = EpsilonOfSteps(epsilon, num_envs)

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks."""
        space: Space = self.policy.recurrent_space
        return space

    @api
    def act(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Actions for observations (N, ...), no log-probabilities, and the recurrent state after the step."""
        features, after = self.policy.features(observations, recurrent_state, episode_start)
        q_values = self.policy.parameters_of(features, observations)
        return self.exploration.select(q_values, graph.batch_rank(self.epsilon.next())), (), after

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them."""
        return self.policy.env_actions(actions)


class SelfActingPQNGraph(PQNGraph):
    """The component graph of PQN, with what acts in it.

    Args:
        epsilon: As in `ActsBySteps`.
        num_envs: As in `ActsBySteps`.
        arguments: Those of `PQNGraph`.
    """

    def __init__(self, *, epsilon: Schedule, num_envs: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.acting = ActsBySteps(self, epsilon, num_envs)


class FusedPQNGraph(FusedOnPolicyGraph, SelfActingPQNGraph):
    """The component graph of PQN with its environments."""


class FusedPQN(FusedOnPolicyAgent, PQN):
    """PQN on environments that are components; see `FusedAgent`."""

    graph_class: ClassVar[type[PQNGraph]] = FusedPQNGraph

    def graph_arguments(self) -> dict[str, Any]:
        own = {"epsilon": make_schedule(self.config.epsilon), "num_envs": self.num_envs}
        return super().graph_arguments() | own

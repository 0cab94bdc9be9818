"""Agents of rollouts whose environments are in the graph: rollouts and the updates on them are one call."""

from __future__ import annotations

from typing import Any

from rlweave import graph
from rlweave.agents.fused import FusedAgent
from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.envs.in_graph import EnvironmentStepper, GraphEnvironment
from rlweave.graph import Component, api


class FusedOnPolicyGraph(Component):
    """The environments' side of a component graph; stands before the algorithm's own graph among the base classes.

    Args:
        environment: The environments.
        rollout_steps: Steps of each environment between two updates.
        arguments: Those of the algorithm's graph.
    """

    acting: Any
    normalization: Any
    update: Any

    def __init__(self, environment: GraphEnvironment, rollout_steps: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.stepper = EnvironmentStepper(environment, self.acting, rollout_steps, self.normalization)

    @api
    def rollout(self) -> Any:
        """Steps the environments; see `EnvironmentStepper.rollout`."""
        return self.stepper.rollout()

    @api(static=("iterations",))
    def train(self, iterations: int = 1) -> Any:
        """Rollouts, each followed by an update on it.

        Args:
            iterations: Static. How many.

        Returns:
            Arrays (iterations, T, N): where episodes ended (`terminated`, `truncated`), and their returns and lengths
            up to each step (`episode_returns`, `episode_steps`).
        """

        def iteration(carry: Any, _: Any) -> Any:
            batch = self.stepper.rollout()
            self.update(batch)
            names = ("terminated", "truncated", "episode_returns", "episode_steps")
            return carry, {name: batch[name] for name in names}

        return graph.scan(iteration, (), length=iterations)[1]


class FusedOnPolicyAgent(FusedAgent, RolloutAgent):
    """The environments' side of an on-policy agent; see `FusedAgent`. An iteration is a rollout with its update."""

    def graph_arguments(self) -> dict[str, Any]:
        own: dict[str, Any] = super().graph_arguments()  # type: ignore[safe-super]  # of the algorithm's agent
        return own | {"environment": self.environment_copy(), "rollout_steps": self.config.rollout_steps}

    @property
    def steps_per_iteration(self) -> int:
        return int(self.config.rollout_steps * self.num_envs)

    def learned_per_iteration(self) -> dict[str, int]:
        return self.learned_from(self.steps_per_iteration)

"""PPO whose environments are in the graph: rollout, advantages and all epochs are one compiled call."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.fused import FusedAgent
from rlweave.agents.ppo import PPO, PPOGraph
from rlweave.envs.in_graph import EnvironmentStepper, GraphEnvironment
from rlweave.graph import api


class FusedPPOGraph(PPOGraph):
    """The component graph of PPO with its environments.

    Args:
        environment: The environments.
        rollout_steps: Steps of each environment between two updates.
        arguments: Those of `PPOGraph`.
    """

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


class FusedPPO(FusedAgent, PPO):
    """PPO on environments that are components; see `FusedAgent`. An iteration is a rollout with its update."""

    graph_class: ClassVar[type[ActorCriticGraph]] = FusedPPOGraph

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {
            "environment": self.environment_copy(),
            "rollout_steps": self.config.rollout_steps,
        }

    @property
    def steps_per_iteration(self) -> int:
        return int(self.config.rollout_steps * self.num_envs)

    def learned_per_iteration(self) -> dict[str, int]:
        config = self.config
        used = self.steps_per_iteration // config.minibatches * config.minibatches
        return {"gradient_steps": config.epochs * config.minibatches, "trained_samples": config.epochs * used}

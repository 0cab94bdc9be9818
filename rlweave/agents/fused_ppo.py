"""PPO whose environments are in the graph: rollout, advantages and all epochs are one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave import graph
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.agent import Metrics
from rlweave.agents.ppo import PPO, PPOConfig, PPOGraph
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


class FusedPPO(PPO):
    """PPO on environments that are components (see `rlweave.envs.in_graph`).

    Args:
        environment: The environments; the agent takes a copy.
        config: `PPOConfig` or its data.
        backend: As in `Agent`. On JAX `train` is one compiled program, on torch a loop over steps.
        seed: As in `Agent`.
    """

    graph_class: ClassVar[type[ActorCriticGraph]] = FusedPPOGraph
    #: Rollouts, each with its update, in one call of the graph.
    iterations_per_call = 1

    def __init__(
        self,
        environment: GraphEnvironment,
        config: PPOConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        spaces = environment.observation_space, environment.action_space
        super().__init__(*spaces, config, num_envs=environment.num_envs, backend=backend, seed=seed)
        self.environment = environment

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {
            "environment": self.environment.copy("environment", initial="fresh"),
            "rollout_steps": self.config.rollout_steps,
        }

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        return {"train": {"iterations": 1}}

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one rollout, over all environments."""
        return int(self.config.rollout_steps * self.num_envs)

    def steps_of_next_call(self, iterations: int = 1) -> int:
        """Environment steps that `train` will take."""
        return iterations * self.steps_per_iteration

    def train(self, iterations: int = 1) -> tuple[Metrics, list[tuple[float, int]]]:
        """Rollouts and updates in one call of the graph.

        Args:
            iterations: How many; each number is compiled once.

        Returns:
            Metrics of the updates (`gradient_steps` and `trained_samples` among them), and (return, length) of each
            episode that ended, in order.

        Raises:
            ExecutionError: Training has diverged.
        """
        record, metrics = self.executor.train(iterations=iterations, with_metrics=True)
        self.count_steps(iterations * self.steps_per_iteration)
        self._acting_is_behind = True
        used = self.steps_per_iteration // self.config.minibatches * self.config.minibatches
        counts = {
            "gradient_steps": iterations * self.config.epochs * self.config.minibatches,
            "trained_samples": iterations * self.config.epochs * used,
        }
        return self._checked(metrics) | counts, episodes_of(record)


def episodes_of(record: Mapping[str, Any]) -> list[tuple[float, int]]:
    """(return, length) of the episodes that ended, in order.

    Args:
        record: Arrays (..., N), time first: `terminated`, `truncated`, `episode_returns`, `episode_steps`.
    """
    ended = np.logical_or(record["terminated"], record["truncated"])
    returns, lengths = record["episode_returns"][ended], record["episode_steps"][ended]
    return list(zip(returns.tolist(), lengths.tolist(), strict=True))

"""Agents whose environments are in their graph: steps and updates are one call of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent, AgentConfig, Metrics
from rlweave.envs.in_graph import GraphEnvironment


class FusedAgent(Agent):
    """The environments' side of an agent; stands before the agent's own class among the base classes.

    Args:
        environment: The environments, components (see `rlweave.envs.in_graph`); the agent takes a copy.
        config: Settings of the agent or their data.
        backend: As in `Agent`. On JAX `train` is one compiled program, on torch a loop over steps.
        seed: As in `Agent`.
    """

    #: Iterations in one call of the graph.
    iterations_per_call = 1
    learns_in_ranks = False

    def __init__(
        self,
        environment: GraphEnvironment,
        config: AgentConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        self.environment, self.num_envs = environment, environment.num_envs
        spaces = environment.observation_space, environment.action_space
        super().__init__(*spaces, config, **self.arguments(), backend=backend, seed=seed)

    @property
    @abstractmethod
    def steps_per_iteration(self) -> int:
        """Environment steps of one iteration, over all environments."""

    @abstractmethod
    def learned_per_iteration(self) -> dict[str, int]:
        """The metrics `gradient_steps` and `trained_samples` of one iteration."""

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        return super().static_arguments | {"train": {"iterations": self.iterations_per_call}}

    def environment_copy(self) -> GraphEnvironment:
        """The environments for a graph."""
        return self.environment.copy("environment", initial="fresh")

    def steps_of_next_call(self, iterations: int | None = None) -> int:
        """Environment steps that `train` will take."""
        return (self.iterations_per_call if iterations is None else iterations) * self.steps_per_iteration

    def train(self, iterations: int | None = None) -> tuple[Metrics, list[tuple[float, int]]]:
        """Steps and updates in one call of the graph, and then what is due, such as a copy to a target network.

        Args:
            iterations: How many; each number is compiled once. None: `iterations_per_call`.

        Returns:
            Metrics of the updates (`gradient_steps` and `trained_samples` among them), and (return, length) of each
            episode that ended, in order.

        Raises:
            ExecutionError: Training has diverged.
        """
        iterations = self.iterations_per_call if iterations is None else iterations
        record, metrics = self.executor.train(iterations=iterations, with_metrics=True)
        self.count_steps(iterations * self.steps_per_iteration)
        self._after_update()
        self._acting_is_behind = True
        learned = {name: iterations * count for name, count in self.learned_per_iteration().items()}
        return self._checked(metrics) | learned, episodes_of(record)


def episodes_of(record: Mapping[str, Any]) -> list[tuple[float, int]]:
    """(return, length) of the episodes that ended, in order.

    Args:
        record: Arrays (..., N), time first: `terminated`, `truncated`, `episode_returns`, `episode_steps`.
    """
    ended = np.logical_or(record["terminated"], record["truncated"])
    returns, lengths = record["episode_returns"][ended], record["episode_steps"][ended]
    return list(zip(returns.tolist(), lengths.tolist(), strict=True))

"""Agents that learn from rollouts: trajectories of T steps in each of B environments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import AgentConfig, Batch, GivesGradients, Metrics
from rlweave.agents.elements import add_axis, first_row
from rlweave.agents.minibatches import RowMinibatches, SequenceMinibatches
from rlweave.components.memories.trajectory_columns import TrajectoryColumns
from rlweave.errors import ExecutionError
from rlweave.graph import Component
from rlweave.graph.assembly import InputSpace
from rlweave.spaces import BoolBox, Dict, FloatBox, Space
from rlweave.tree import tree_map


class RolloutAgent(GivesGradients):
    """An agent that learns from rollouts of its own policy, or of older ones.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: Settings or their data.
        num_envs: Environments whose observed steps make one update without a batch.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    #: Class of the root component.
    graph_class: ClassVar[type[Component]]
    config: Any

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: AgentConfig | Mapping[str, Any] | None = None,
        *,
        num_envs: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        self.num_envs = num_envs
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)

    @property
    def minibatch_class(self) -> type[RowMinibatches]:
        """Class that cuts rollouts into minibatches."""
        return minibatches_of(self.recurrent)

    def arguments(self) -> dict[str, Any]:
        return {"num_envs": self.num_envs}

    def make_root(self) -> Component:
        return self.graph_class(**self.graph_arguments())

    @abstractmethod
    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""

    @property
    def _trajectories_per_batch(self) -> int | bool:
        """B of the batches that `update` takes; True for any."""
        return True

    def step_space(self) -> Dict:
        """Space of one step of a rollout, without ranks; `actions` are the agent's own (`own_action_space`)."""
        return Dict(
            observations=self.observation_space,
            next_observations=self.observation_space,
            actions=self.own_action_space,
            rewards=FloatBox(),
            terminated=BoolBox(),
            truncated=BoolBox(),
        )

    @abstractmethod
    def row_space(self) -> Dict:
        """Space of one step of what `postprocess` gives, without ranks."""

    def batch_space(self) -> Space:
        """Space of the batch that `update` takes: steps (T, B, ...), see `step_space`.

        With recurrent networks also `episode_start` (T, B), and `initial_state`, the recurrent state before the first
        step, (B, ...).
        """
        steps, trajectories = self.config.rollout_steps, self._trajectories_per_batch
        return self.minibatch_class.rollout_space(self.step_space(), self.recurrent_space, steps, trajectories)

    def rows_space(self, steps: int | bool = True, trajectories: int | bool = True) -> Space:
        """Space of what `postprocess` gives: rows (N, ...), or with recurrent networks sequences (T, B, ...).

        Args:
            steps: T, where it is known.
            trajectories: B, where it is known.
        """
        return self.minibatch_class.space(self.row_space(), self.recurrent_space, steps, trajectories)

    def input_spaces(self) -> dict[str, InputSpace]:
        return self.acting_spaces() | {
            "batch": self.batch_space(),
            "rows": self.rows_space(),
            "gradients": lambda root: root.trained(),
        }

    def forget_steps(self) -> None:
        super().forget_steps()
        #: Steps that were observed one by one, by environment; and whole rollouts (T, 1, ...) of them.
        self._columns: dict[Any, TrajectoryColumns] = {}
        self._rollouts: list[Any] = []

    def collect(self, env_id: Any, step: dict[str, Any]) -> None:
        columns = self._columns.setdefault(env_id, TrajectoryColumns(self.config.rollout_steps, 1))
        columns.add(add_axis(step), np.ones(1, np.bool_))
        rollout = columns.take()
        if rollout is not None:
            self._rollouts.append(rollout)

    def ready(self) -> bool:
        """Whether enough was observed for an update without a batch."""
        return len(self._rollouts) >= self.num_envs

    def learned_from(self, steps: int) -> dict[str, int]:
        """The metrics `gradient_steps` and `trained_samples` of an update on so many environment steps."""
        return {"gradient_steps": 1, "trained_samples": steps}

    def learn(self, batch: Batch) -> Metrics:
        """Learns from a rollout, a dict of arrays (T, B, ...) as `batch_space` says.

        Raises:
            ExecutionError: A metric is not finite.
        """
        steps = int(np.size(batch["rewards"]))
        if self.share is not None:
            self.share.rows = steps
        metrics = self._update_on(batch)
        self._after_update()
        self._copy_to_acting()
        return {**self._checked(metrics), **self.learned_from(steps)}

    def _update_on(self, batch: Batch) -> Metrics:
        metrics: Metrics = self.executor.update(batch, with_metrics=True)[1]
        return metrics

    def observed(self) -> Batch:
        if not self.ready():
            raise ExecutionError(
                "there is not enough to learn from yet",
                where=f"{self.name}.update",
                received=f"{len(self._rollouts)} rollouts",
                fix=f"observe {self.config.rollout_steps} steps of each of {self.num_envs} environments",
            )
        taken, self._rollouts = self._rollouts[: self.num_envs], self._rollouts[self.num_envs :]
        return with_initial_state(tree_map(lambda *columns: np.concatenate(columns, axis=1), *taken))

    def postprocess(self, batch: Batch) -> Batch:
        return self.executor.postprocess(batch)


def minibatches_of(recurrent: bool) -> type[RowMinibatches]:
    """How the rollouts of networks with a memory, or without, are cut."""
    return SequenceMinibatches if recurrent else RowMinibatches


def with_initial_state(batch: Batch) -> Batch:
    """A rollout (T, B, ...) whose `recurrent_state` before each step is reduced to `initial_state`, (B, ...)."""
    if "recurrent_state" not in batch:
        return batch
    kept = {name: value for name, value in batch.items() if name != "recurrent_state"}
    return {**kept, "initial_state": first_row(batch["recurrent_state"])}

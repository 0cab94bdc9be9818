"""What A2C, PPO, IMPALA and APPO share: a policy and a value function that learn from rollouts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.agent import AgentConfig, Batch, GivesGradients, Metrics
from rlweave.agents.elements import add_axis, first_row
from rlweave.agents.minibatches import RowMinibatches, SequenceMinibatches
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.components import Policy, RunningNormalization, ValueFunction
from rlweave.components.memories.trajectory_columns import TrajectoryColumns
from rlweave.components.network import mlp
from rlweave.errors import ExecutionError
from rlweave.graph import Component, shared
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import BoolBox, Dict, FloatBox, Space
from rlweave.tree import tree_map


class ActorCriticConfig(AgentConfig):
    """Settings that all of them have, some with other defaults."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None,
        "layers of policy and value function; null: two dense tanh layers of 64, none behind the default image network",
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    shared_network: bool | None = setting(
        False, "one encoder for policy and value function; null: where images are observed"
    )
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    rollout_steps: int = setting(16, "steps of each environment between two updates", ge=1, unit="steps")
    initial_log_std: float = setting(
        0.0, "logarithm of the initial deviation of box actions, in units of half the box", within=FINITE
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(3e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        0.5, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", ge=0)
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)
    normalize_observations: bool = setting(False, "running normalization of float observations")


class ActorCriticAgent(GivesGradients):
    """An agent that learns from rollouts of its own policy, or of older ones.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action: discrete, multi-discrete, box and nests of them.
        config: Settings or their data.
        num_envs: Environments whose observed steps make one update without a batch.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    #: Class of the root component.
    graph_class: ClassVar[type[ActorCriticGraph]] = ActorCriticGraph
    config: Any
    on_policy = True
    acting_prefixes: tuple[str, ...] = ("policy", "normalization")

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
        if self.recurrent and "value-function" not in self.acting_prefixes:
            self.acting_prefixes = (*self.acting_prefixes, "value-function")  # its state is carried along

    @property
    def minibatch_class(self) -> type[RowMinibatches]:
        """Class that cuts rollouts into minibatches."""
        return minibatches_of(self.recurrent)

    def arguments(self) -> dict[str, Any]:
        return {"num_envs": self.num_envs}

    def make_root(self) -> ActorCriticGraph:
        return self.graph_class(**self.graph_arguments())

    @abstractmethod
    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component: `networks()`, advantages and loss."""

    def networks(self) -> dict[str, Any]:
        """Arguments of the root component that all have: networks, their optimizer, minibatches, normalization."""
        config = self.config
        encoder = self.encoder_arguments() | {"initializer": "orthogonal"}
        policy = Policy(
            action_space=self.action_space,
            initial_log_std=config.initial_log_std,
            mask_leaf=config.mask_leaf,
            **encoder,
        )
        if config.shared_network:
            encoder = {"network": shared(policy.network), "initializer": "orthogonal"}
        return {
            "policy": policy,
            "value_function": ValueFunction(**encoder),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "normalization": RunningNormalization() if config.normalize_observations else None,
            "reward_scale": config.reward_scale,
            "minibatches": self.minibatch_class(),
        }

    @property
    def _trajectories_per_batch(self) -> int | bool:
        """B of the batches that `update` takes; True for any."""
        return True

    def batch_space(self) -> Space:
        """Space of the batch that `update` takes: (T, B, ...); `actions` are the agent's own (`own_action_space`).

        With recurrent networks also `episode_start` (T, B), and `initial_state`, the recurrent state before the first
        step, (B, ...).
        """
        step = Dict(
            observations=self.observation_space,
            next_observations=self.observation_space,
            actions=self.own_action_space,
            log_probs=FloatBox(),
            rewards=FloatBox(),
            terminated=BoolBox(),
            truncated=BoolBox(),
        )
        steps, trajectories = self.config.rollout_steps, self._trajectories_per_batch
        return self.minibatch_class.rollout_space(step, self.recurrent_space, steps, trajectories)

    def rows_space(self, steps: int | bool = True, trajectories: int | bool = True) -> Space:
        """Space of what `postprocess` gives: rows (N, ...), or with recurrent networks sequences (T, B, ...).

        Args:
            steps: T, where it is known.
            trajectories: B, where it is known.
        """
        row = Dict(
            observations=self.observation_space,
            actions=self.own_action_space,
            log_probs=FloatBox(),
            values=FloatBox(),
            advantages=FloatBox(),
            value_targets=FloatBox(),
        )
        return self.minibatch_class.space(row, self.recurrent_space, steps, trajectories)

    def input_spaces(self) -> dict[str, InputSpace]:
        return self.acting_spaces() | {
            "batch": self.batch_space(),
            "rows": self.rows_space(),
            "gradients": lambda root: root.trained(),
        }

    # -- acting --------------------------------------------------------------------------------------------------

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        """Log-probabilities `log_probs` (B,) are stored with the step."""
        actions, log_probs, after = self.acting.act(
            observations, *carried.values(), explore=explore, preprocess=preprocess
        )
        return actions, {"log_probs": log_probs, **carried}, after

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

    # -- learning ------------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether enough was observed for an update without a batch."""
        return len(self._rollouts) >= self.num_envs

    def learn(self, batch: Batch) -> Metrics:
        """Learns from a rollout, a dict of arrays (T, B, ...) as `batch_space` says.

        Raises:
            ExecutionError: A metric is not finite.
        """
        if self.share is not None:
            self.share.rows = np.size(batch["rewards"])
        metrics = self._update_on(batch)
        self._after_update()
        self._copy_to_acting()
        return {**self._checked(metrics), "gradient_steps": 1, "trained_samples": int(np.size(batch["rewards"]))}

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

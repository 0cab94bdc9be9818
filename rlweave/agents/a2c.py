"""Advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783): A2C, and A3C's workers' agents.

One agent does both. In A2C it learns from the rollouts of all environments at once; in A3C workers compute gradients
of their own rollouts (`rollout_gradients`), with weights that may be older than those the gradients are applied to.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlweave.agents.a2c_graph import A2CGraph, RecurrentA2CGraph
from rlweave.agents.agent import AgentConfig, Batch, Metrics
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.ppo import PPO, with_initial_state
from rlweave.components import (
    ActorCriticLoss,
    GeneralizedAdvantageEstimation,
)
from rlweave.components.network import mlp
from rlweave.errors import ExecutionError
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Space


class ActorCriticConfig(AgentConfig):
    """Settings that A2C and A3C share."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None,
        "layers of policy and value function; null: two dense tanh layers of 64, none behind the default image network",
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    shared_network: bool = setting(False, "one trunk for policy and value function")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    gae_lambda: float = setting(
        1.0, "lambda of generalized advantage estimation; 1: returns up to the end of the rollout, as the paper", ge=0,
        le=1,
    )  # fmt: skip
    rollout_steps: int = setting(16, "steps of each environment between two updates", ge=1, unit="steps")
    initial_log_std: float = setting(
        0.0, "logarithm of the initial deviation of box actions, in units of half the box", within=FINITE
    )
    optimizer: dict[str, Any] = setting({"type": "rmsprop", "epsilon": 1e-5}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(7e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        0.5, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", ge=0)
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)

    # What PPO has as settings is fixed here: each rollout is used once, as a whole, with its own advantages.
    epochs: ClassVar[int] = 1
    minibatches: ClassVar[int] = 1
    normalize_advantages: ClassVar[bool] = False


class A2CConfig(ActorCriticConfig):
    """Settings of A2C."""

    normalize_observations: bool = setting(False, "running normalization of float observations")


class A3CConfig(ActorCriticConfig):
    """Settings of A3C. Gradients travel to the learner, and no observations that it could find statistics of."""

    normalize_observations: ClassVar[bool] = False


class A2C(PPO):
    """A2C for discrete, multi-discrete, box and nested action spaces, with and without recurrent networks.

    Acting, observing and post-processing are PPO's; an update is one optimizer step on the whole rollout.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `A2CConfig` or its data.
        num_envs: Environments whose observed steps make one update; batches that are given may have any number.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "a2c"
    config_class = A2CConfig  # type: ignore[assignment]  # has what PPO looks at, some of it fixed
    config: Any

    def make_root(self) -> A2CGraph:
        # one name for A2C and A3C: the same seed gives both the same weights, and each can take the other's
        return (RecurrentA2CGraph if self.recurrent else A2CGraph)(**self.graph_arguments(), scope="actor-critic")

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        config = self.config
        return {
            **self.network_arguments(),
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": ActorCriticLoss(config.value_coefficient, config.entropy_coefficient),
            "epochs": config.epochs,
            "minibatches": config.minibatches,
        }

    def batch_space(self) -> Space:
        """Space of a rollout (T, B, ...) as in `PPO.batch_space`, of any number of environments."""
        return super().batch_space().with_batch_rank()

    def update(self, batch: Batch | None = None) -> Metrics:
        """One optimizer step on a rollout.

        Args:
            batch: Dict of arrays (T, B, ...) as `batch_space` says; None takes what was observed.

        Raises:
            ExecutionError: Without a batch, when fewer than `rollout_steps` steps of `num_envs` environments were
                observed.
        """
        if batch is None:
            if not self.ready():
                raise ExecutionError(
                    "there is not enough to learn from yet",
                    where=f"{self.name}.update",
                    received=f"{self._trajectories.lengths()} steps by environment",
                    fix=f"observe {self.config.rollout_steps} steps of each of {self.num_envs} environments",
                )
            batch = with_initial_state(self._trajectories.take(self.num_envs))
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_actor()
        return {**self._checked(metrics), "gradient_steps": 1, "trained_samples": np.size(batch["rewards"])}

    def rollout_gradients(self, batch: Batch) -> tuple[dict[str, np.ndarray], Metrics]:
        """Gradients of the loss on a rollout, by variable path, and the metrics of the loss; changes nothing.

        The same as `compute_gradients(postprocess(batch))`, in one call.

        Args:
            batch: Dict of arrays (T, B, ...) as `batch_space` says.
        """
        gradients, metrics = self.executor.rollout_gradients(batch, with_metrics=True)
        return gradients, self._checked(metrics)


class A3C(A2C):
    """The agent of A3C's learner, and of its workers: their weights include those of the value function.

    Args:
        arguments: Those of `A2C`, with an `A3CConfig`.
    """

    name: ClassVar[str] = "a3c"
    config_class = A3CConfig  # type: ignore[assignment]
    acting_prefixes: tuple[str, ...] = ("policy", "value-function")
    worker_methods: ClassVar[tuple[str, ...] | None] = ("act", "rollout_gradients")

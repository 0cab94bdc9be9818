"""Advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783): A2C, and A3C's workers' agents.

One agent does both. In A2C it learns from the rollouts of all environments at once; in A3C workers compute gradients
of their own rollouts (`rollout_gradients`), with weights that may be older than those the gradients are applied to.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlweave.agents.actor_critic import ActorCriticAgent, ActorCriticConfig
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.agent import Batch, Metrics, ReplicatedConfig
from rlweave.components import ActorCriticLoss, GeneralizedAdvantageEstimation
from rlweave.graph import api
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE


class AdvantageConfig(ActorCriticConfig):
    """Settings that A2C and A3C share."""

    gae_lambda: float = setting(
        1.0, "lambda of generalized advantage estimation; 1: returns up to the end of the rollout, as the paper", ge=0,
        le=1,
    )  # fmt: skip
    optimizer: dict[str, Any] = setting({"type": "rmsprop", "epsilon": 1e-5}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(7e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)


class A2CConfig(AdvantageConfig, ReplicatedConfig):
    """Settings of A2C."""


class A3CConfig(AdvantageConfig):
    """Settings of A3C. Gradients travel to the learner, and no observations that it could find statistics of."""

    normalize_observations: ClassVar[bool] = False  # type: ignore[misc]


class A2CGraph(ActorCriticGraph):
    """The component graph of A2C and A3C: one optimizer step on all of a rollout, or its gradients."""

    @api
    def rollout_gradients(self, batch: Any) -> Any:
        """Gradients of the loss on a rollout (T, B, ...), by variable path; changes nothing."""
        return self.gradients(self.postprocess(batch))


class A2C(ActorCriticAgent):
    """A2C for discrete, multi-discrete, box and nested action spaces: an update is one step on the whole rollout.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `A2CConfig` or its data.
        num_envs: Environments whose observed steps make one update; batches that are given may have any number.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "a2c"
    learns_in_ranks = True
    config_class: ClassVar[type[AdvantageConfig]] = A2CConfig
    # A2C and A3C share the root scope, so seeds and weights are interchangeable
    graph_class: ClassVar[type[ActorCriticGraph]] = A2CGraph

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self.networks(),
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": ActorCriticLoss(config.value_coefficient, config.entropy_coefficient),
        }

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
    learns_in_ranks = False
    config_class: ClassVar[type[AdvantageConfig]] = A3CConfig
    acting_prefixes: tuple[str, ...] = ("policy", "value-function")
    worker_methods: ClassVar[tuple[str, ...] | None] = ("act", "rollout_gradients")

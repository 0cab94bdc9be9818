"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), clipped, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.actor_critic import ActorCriticAgent, ActorCriticConfig
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.epochs import EpochsAgent, EpochsConfig, EpochsGraph
from rlweave.components import GeneralizedAdvantageEstimation, PPOLoss, RewardNormalization
from rlweave.errors import ConfigError
from rlweave.settings.config import setting
from rlweave.settings.ranges import POSITIVE
from rlweave.spaces import FloatBox, Space, Tuple


class PPOConfig(EpochsConfig, ActorCriticConfig):
    """Settings of PPO."""

    shared_network: bool | None = setting(
        None, "one encoder for policy and value function; null: where images are observed"
    )
    gae_lambda: float = setting(0.95, "lambda of generalized advantage estimation", ge=0, le=1)
    clip: float = setting(0.2, "clip range of the probability ratio", gt=0)
    value_clip: float | None = setting(None, "clip range of the value function; null: not clipped", within=POSITIVE)
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus", ge=0)
    normalize_advantages: bool = setting(True, "normalize advantages in each minibatch")
    normalize_rewards: bool = setting(False, "running normalization of rewards by the deviation of discounted returns")


class PPOGraph(EpochsGraph, ActorCriticGraph):
    """The component graph of PPO.

    Args:
        reward_normalization: Running normalization of rewards, or None.
        arguments: Those of `EpochsGraph` and `ActorCriticGraph`.
    """

    loss: PPOLoss

    def __init__(
        self,
        *,
        reward_normalization: RewardNormalization | None = None,
        scope: str = "ppo",
        **arguments: Any,
    ) -> None:
        super().__init__(scope=scope, **arguments)
        self.reward_normalization = reward_normalization

    def _rows(self, batch: Any) -> Any:
        if self.reward_normalization is not None:
            self.reward_normalization.update(batch["rewards"], batch["terminated"], batch["truncated"])
        rows = self.postprocess(batch)
        self._report_fit(rows["value_targets"], rows["values"])
        return rows

    def _after_epochs(self, batch: Any) -> None:
        if self.normalization is not None:
            # after the update, so that the ratio is 1 at the first minibatch of the next one
            self.normalization.merge(batch["observations"])

    def _column(self, rows: Any) -> Any:
        return rows["log_probs"]

    def _moments_of_ranks(self, rows: Any, indices: Any) -> Any:
        """Moments (M,) of the advantages over ranks."""
        return self.loss.moments_of_ranks(self.minibatches.column_of_pass(rows["advantages"], indices))

    def _loss(self, rows: Any) -> Any:
        log_probs, entropies, values = self._predictions(rows)
        loss, metrics = self.loss.loss(
            log_probs,
            rows["log_probs"],
            rows["advantages"],
            values,
            rows["value_targets"],
            entropies,
            rows["values"] if self.loss.value_clip is not None else None,
            moments=rows.get("moments", ()),
        )
        graph.metrics(metrics)
        return loss

    def _rewards(self, batch: Any) -> Any:
        rewards = batch["rewards"]
        return self._scale(rewards if self.reward_normalization is None else self.reward_normalization.call(rewards))


class PPO(EpochsAgent, ActorCriticAgent):
    """PPO for discrete, multi-discrete, box and nested action spaces.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `PPOConfig` or its data.
        num_envs: Environments whose rollouts make one update.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "ppo"
    config_class = PPOConfig
    graph_class: ClassVar[type[ActorCriticGraph]] = PPOGraph
    #: Class of the loss; a subclass changes a part of it, see `docs/change-a-loss.md`.
    loss_class: ClassVar[type[PPOLoss]] = PPOLoss

    def complete_settings(self) -> None:
        super().complete_settings()
        rows = self.config.rollout_steps * self.num_envs
        if self.config.normalize_advantages and rows // self.config.minibatches == 1:
            raise ConfigError(
                "advantages cannot be normalized over a minibatch of one row",
                where="normalize_advantages",
                received=f"{rows} rows in {self.config.minibatches} minibatches",
                fix="use fewer minibatches, or normalize_advantages=false",
            )

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self.networks(),
            **self.epochs_arguments(),
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": self.loss_class(**self.loss_arguments()),
            "reward_normalization": RewardNormalization(config.discount) if config.normalize_rewards else None,
        }

    def loss_arguments(self) -> dict[str, Any]:
        """Arguments of `loss_class`; override to give your loss settings of its own."""
        config = self.config
        return {
            "clip": config.clip,
            "value_clip": config.value_clip,
            "value_coefficient": config.value_coefficient,
            "entropy_coefficient": config.entropy_coefficient,
            "normalize_advantages": config.normalize_advantages,
        }

    def moments_space(self) -> Space:
        over_ranks = self.share is not None and self.config.normalize_advantages
        return Tuple(FloatBox(), FloatBox()) if over_ranks else Tuple()

"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), clipped, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np

from rlweave import graph
from rlweave.agents.actor_critic import ActorCriticAgent, ActorCriticConfig, minibatches_of
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.agent import Batch, Metrics, ReplicatedConfig
from rlweave.backends import get_backend
from rlweave.components import GeneralizedAdvantageEstimation, PPOLoss, RewardNormalization
from rlweave.components.network import is_recurrent
from rlweave.errors import ConfigError
from rlweave.graph import api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import POSITIVE
from rlweave.spaces import FloatBox, IntBox, Tuple


class PPOConfig(ActorCriticConfig, ReplicatedConfig):
    """Settings of PPO."""

    shared_network: bool | None = setting(
        None, "one encoder for policy and value function; null: where images are observed"
    )
    gae_lambda: float = setting(0.95, "lambda of generalized advantage estimation", ge=0, le=1)
    rollout_steps: int = setting(128, "steps of each environment between two updates", ge=1, unit="steps")
    epochs: int = setting(10, "passes over the rollout in an update", ge=1)
    minibatches: int | None = setting(
        None, "minibatches in each pass; null: as many as have about 64 rows; recurrent networks: at most 4", ge=1
    )
    clip: float = setting(0.2, "clip range of the probability ratio", gt=0)
    value_clip: float | None = setting(None, "clip range of the value function; null: not clipped", within=POSITIVE)
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus", ge=0)
    normalize_advantages: bool = setting(True, "normalize advantages in each minibatch")
    normalize_rewards: bool = setting(False, "running normalization of rewards by the deviation of discounted returns")


PPOConfigT = TypeVar("PPOConfigT", bound=PPOConfig)


def fill_minibatches(config: PPOConfigT, num_envs: int) -> PPOConfigT:
    """The settings with a number of minibatches: a divisor of what is cut, rows or, if recurrent, whole sequences.

    Args:
        config: Settings; a number that they have stays.
        num_envs: Environments whose rollouts make one update.
    """
    if config.minibatches is not None:
        return config
    count = minibatches_of(is_recurrent(config.network)).default_count(config.rollout_steps, num_envs)
    return config.model_copy(update={"minibatches": count})


class PPOGraph(ActorCriticGraph):
    """The component graph of PPO.

    Args:
        epochs: Passes over a rollout.
        in_parts: An update is a method for each of its parts, between which ranks meet, or devices.
        reward_normalization: Running normalization of rewards, or None.
        arguments: Those of `ActorCriticGraph`.
    """

    loss: PPOLoss

    def __init__(
        self,
        *,
        epochs: int,
        in_parts: bool = False,
        reward_normalization: RewardNormalization | None = None,
        scope: str = "ppo",
        **arguments: Any,
    ) -> None:
        super().__init__(scope=scope, **arguments)
        self.epochs, self.in_parts, self.reward_normalization = epochs, in_parts, reward_normalization

    def offers(self, method: str) -> bool:
        """An update is one method, or some."""
        parts = ("begin_update", "shuffled", "update_on", "end_update")
        return method not in (("update",) if self.in_parts else parts)

    @api
    def update(self, batch: Any) -> Any:
        """Learns from a rollout (T, B, ...): advantages once, then epochs x minibatches of optimizer steps."""
        rows = self._rows(batch)
        graph.repeat(self.epochs, lambda: self._epoch(rows))
        self._after_epochs(batch)

    # -- the same in parts ---------------------------------------------------------------------------------------

    @api
    def begin_update(self, batch: Any) -> Any:
        """The rows that an update on a rollout (T, B, ...) learns from."""
        return self._rows(batch)

    @api
    def shuffled(self, rows: Any) -> Any:
        """Indices (M, size) of the minibatches of a pass, and moments (M,) of their advantages over ranks."""
        indices = self.minibatches.shuffled(rows["log_probs"])
        advantages = self.minibatches.column_of_pass(rows["advantages"], indices)
        return indices, self.loss.moments_of_ranks(advantages)

    @api
    def update_on(self, rows: Any, indices: Any, moments: Any) -> None:
        """One optimizer step on the minibatch of some indices, whose advantages have some moments."""
        self._step({**self.minibatches.take(rows, indices), "moments": moments})

    @api
    def end_update(self, batch: Any) -> None:
        """What comes after all epochs."""
        self._after_epochs(batch)

    # -- parts ---------------------------------------------------------------------------------------------------

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

    def _epoch(self, rows: Any) -> None:
        def step(carry: Any, indices: Any) -> Any:
            self._step(self.minibatches.take(rows, indices))
            return carry, None

        graph.scan(step, (), self.minibatches.shuffled(rows["log_probs"]))

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


class PPO(ActorCriticAgent):
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
    learns_in_ranks = True
    config_class = PPOConfig
    config: Any  # PPOConfig, with a number of minibatches
    graph_class: ClassVar[type[ActorCriticGraph]] = PPOGraph
    #: Class of the loss; a subclass changes a part of it, see `docs/change-a-loss.md`.
    loss_class: ClassVar[type[PPOLoss]] = PPOLoss

    def complete_settings(self) -> None:
        super().complete_settings()
        self.config = fill_minibatches(self.config, self.num_envs)
        rows = self.config.rollout_steps * self.num_envs
        if self.recurrent and self.num_envs % self.config.minibatches:
            raise ConfigError(
                "minibatches of recurrent networks are whole sequences, and cannot be cut equally",
                where="minibatches",
                received=f"{self.num_envs} environments into {self.config.minibatches}",
                fix=f"choose a divisor of {self.num_envs}, or another num_envs",
            )
        if rows % self.config.minibatches:
            raise ConfigError(
                "the rollout cannot be cut into equal minibatches",
                where="minibatches",
                received=f"{rows} rows ({self.config.rollout_steps} steps x {self.num_envs} environments) "
                f"into {self.config.minibatches}",
                fix=f"choose a divisor of {rows}",
            )
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
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": self.loss_class(**self.loss_arguments()),
            "minibatches": self.minibatch_class(config.minibatches),
            "reward_normalization": RewardNormalization(config.discount) if config.normalize_rewards else None,
            "epochs": config.epochs,
            "in_parts": self.in_parts,
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

    @property
    def _trajectories_per_batch(self) -> int | bool:
        return self.num_envs

    @property
    def in_parts(self) -> bool:
        """Whether it loops over minibatches itself: ranks, and devices of several programs, do not meet in a loop."""
        return self.share is not None or (self.replicas is not None and not get_backend(self.backend).spreads)

    def input_spaces(self) -> dict[str, InputSpace]:
        if not self.in_parts:
            return super().input_spaces()
        steps, envs = self.config.rollout_steps, self.num_envs
        rows = self.rows_space(steps, envs)
        size = self.minibatch_class.pieces(steps, envs) // self.config.minibatches
        over_ranks = self.share is not None and self.config.normalize_advantages
        moments = Tuple(FloatBox(), FloatBox()) if over_ranks else Tuple()
        parts = {"indices": IntBox(shape=(size,)), "moments": moments, "shuffled.rows": rows, "update_on.rows": rows}
        return super().input_spaces() | parts

    def _update_on(self, batch: Batch) -> Metrics:
        if not self.in_parts:
            return super()._update_on(batch)
        executor = self.executor
        rows, first = executor.begin_update(batch, as_numpy=False, with_metrics=True)
        found: dict[str, list[float]] = {}
        for _ in range(self.config.epochs):
            indices, moments = executor.shuffled(rows)
            for k in range(self.config.minibatches):
                own = tuple(moment[k, ...] for moment in moments)
                for name, value in executor.update_on(rows, indices[k], own, with_metrics=True)[1].items():
                    found.setdefault(name, []).append(value)
        executor.end_update(batch)
        return first | {name: float(np.mean(values)) for name, values in found.items()}

    def learn(self, batch: Batch) -> Metrics:
        steps = self.config.epochs * self.config.minibatches
        samples = self.config.epochs * self.config.rollout_steps * self.num_envs
        return {**super().learn(batch), "gradient_steps": steps, "trained_samples": samples}

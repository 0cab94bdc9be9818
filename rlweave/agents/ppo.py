"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), clipped, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.ppo_graph import PPOGraph
from rlweave.agents.recurrent_ppo_graph import RecurrentPPOGraph
from rlweave.agents.trajectories import TrajectoryAssembler, add_axis, first_row, is_single, same
from rlweave.components import (
    GeneralizedAdvantageEstimation,
    Policy,
    PPOLoss,
    RewardNormalization,
    RunningNormalization,
    ValueFunction,
)
from rlweave.components.network import is_recurrent, mlp
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, shared
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import BoolBox, Dict, FloatBox, Space
from rlweave.tree import leaves_of, tree_map


class PPOConfig(AgentConfig):
    """Settings of PPO."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None,
        "layers of policy and value function; null: two dense tanh layers of 64, none behind the default image network",
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    shared_network: bool | None = setting(
        None, "one trunk for policy and value function; null: where images are observed"
    )
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    gae_lambda: float = setting(0.95, "lambda of generalized advantage estimation", ge=0, le=1)
    rollout_steps: int = setting(128, "steps of each environment between two updates", ge=1, unit="steps")
    epochs: int = setting(10, "passes over the rollout in an update", ge=1)
    minibatches: int | None = setting(
        None, "minibatches in each pass; null: of about 64 rows, with recurrent networks up to 4", ge=1
    )
    initial_log_std: float = setting(
        0.0, "logarithm of the initial deviation of box actions, in units of half the box", within=FINITE
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(3e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        0.5, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    clip: float = setting(0.2, "clip range of the probability ratio", gt=0)
    value_clip: float | None = setting(None, "clip range of the value function; null: not clipped", within=POSITIVE)
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus", ge=0)
    normalize_advantages: bool = setting(True, "normalize advantages in each minibatch")
    normalize_observations: bool = setting(False, "running normalization of float observations")
    normalize_rewards: bool = setting(False, "running normalization of rewards by the deviation of discounted returns")
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)


PPOConfigT = TypeVar("PPOConfigT", bound=PPOConfig)


def fill_minibatches(config: PPOConfigT, num_envs: int) -> PPOConfigT:
    """The settings with a number of minibatches: a divisor of what is cut, rows or, if recurrent, whole sequences.

    Args:
        config: Settings; a number that they have stays.
        num_envs: Environments whose rollouts make one update.
    """
    if config.minibatches is not None:
        return config
    rows = config.rollout_steps * num_envs
    whole, most = (num_envs, 4) if is_recurrent(config.network) else (rows, rows // 64)
    chosen = next(number for number in range(max(most, 1), 0, -1) if whole % number == 0)
    return config.model_copy(update={"minibatches": chosen})


class PPO(Agent):
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
    config: Any  # PPOConfig, with a number of minibatches
    acting_prefixes: tuple[str, ...] = ("policy", "normalization")

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PPOConfig | Mapping[str, Any] | None = None,
        *,
        num_envs: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)
        self.num_envs = num_envs
        if self.recurrent:
            self.acting_prefixes = (*self.acting_prefixes, "value-function")  # its state is carried along
        self._check_minibatches()
        self._trajectories = TrajectoryAssembler(self.config.rollout_steps)
        #: By environment: the action to learn from, what belongs to it, and the action that the environment was given.
        self._acted: dict[Any, tuple[Any, dict[str, Any], Any]] = {}

    def _check_minibatches(self) -> None:
        """Settles the number of minibatches, and checks that a rollout can be cut into them.

        Raises:
            ConfigError: It cannot.
        """
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

    def arguments(self) -> dict[str, Any]:
        return {"num_envs": self.num_envs}

    def make_root(self) -> PPOGraph:
        return (RecurrentPPOGraph if self.recurrent else PPOGraph)(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        config = self.config
        return {
            **self.network_arguments(),
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": PPOLoss(
                clip=config.clip,
                value_clip=config.value_clip,
                value_coefficient=config.value_coefficient,
                entropy_coefficient=config.entropy_coefficient,
                normalize_advantages=config.normalize_advantages,
            ),
            "reward_normalization": RewardNormalization(config.discount) if config.normalize_rewards else None,
            "epochs": config.epochs,
            "minibatches": config.minibatches,
        }

    def network_arguments(self) -> dict[str, Any]:
        """Those that A2C, A3C and IMPALA have as well: networks, their optimizer, and what is made of inputs."""
        config = self.config
        encoder: dict[str, Any] = {
            "network": config.network,
            "image_network": config.image_network or None,
            "observation_space": self.observation_space,
            "initializer": "orthogonal",
        }
        policy = Policy(
            action_space=self.action_space,
            initial_log_std=config.initial_log_std,
            mask_leaf=config.mask_leaf,
            **encoder,
        )
        trunk = {"network": shared(policy.network), "initializer": "orthogonal"} if config.shared_network else encoder
        return {
            "policy": policy,
            "value_function": ValueFunction(**trunk),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "normalization": RunningNormalization() if config.normalize_observations else None,
            "reward_scale": config.reward_scale,
        }

    @property
    def _trajectories_per_batch(self) -> int | bool:
        """B of the batches that `update` takes; True for any."""
        return self.num_envs

    def batch_space(self) -> Space:
        """Space of the batch that `update` takes: (T, B, ...); `actions` are the agent's own (`own_action_space`).

        With recurrent networks also `episode_start` (T, B), and `initial_state`, the recurrent state before the first
        step, (B, ...).
        """
        leaves: dict[str, Space] = {
            "observations": self.observation_space,
            "next_observations": self.observation_space,
            "actions": self.own_action_space,
            "log_probs": FloatBox(),
            "rewards": FloatBox(),
            "terminated": BoolBox(),
            "truncated": BoolBox(),
        }
        if self.recurrent:
            leaves["episode_start"] = BoolBox()
        space = Dict(leaves).with_batch_rank(self._trajectories_per_batch).with_time_rank(self.config.rollout_steps)
        if self.recurrent:
            initial_state = self.recurrent_space.with_batch_rank(self._trajectories_per_batch)
            space = Dict({**space, "initial_state": initial_state})
        return space

    def input_spaces(self) -> dict[str, InputSpace]:
        spaces: dict[str, InputSpace] = {
            "observations": self.observation_space.with_batch_rank(),
            "batch": self.batch_space(),
            "rows": self.rows_space(),
            "gradients": lambda root: root.trained(),
        }
        if self.recurrent:
            spaces["recurrent_state"] = self.recurrent_space.with_batch_rank()
            spaces["episode_start"] = BoolBox(add_batch_rank=True)
        return spaces

    def rows_space(self) -> Space:
        """Space of post-processed rows (N, ...); of recurrent networks (T, B, ...)."""
        rows = Dict(
            observations=self.observation_space,
            actions=self.own_action_space,
            log_probs=FloatBox(),
            values=FloatBox(),
            advantages=FloatBox(),
            value_targets=FloatBox(),
        )
        if not self.recurrent:
            return rows.with_batch_rank()
        sequences = Dict({**rows, "episode_start": BoolBox()}).with_batch_rank().with_time_rank()
        return Dict({**sequences, "initial_state": self.recurrent_space.with_batch_rank()})

    # -- acting --------------------------------------------------------------------------------------------------

    def act(self, observations: Any, explore: bool = True, preprocess: bool = True) -> tuple[Any, np.ndarray]:
        """Actions (B, ...) and their log-probabilities (B,) for a batch of observations."""
        self.check_masks(observations)
        actions, log_probs = self.actor.act(observations, explore=explore, preprocess=preprocess)
        return actions, log_probs

    def act_recurrently(
        self, observations: Any, recurrent_state: Any, episode_start: Any, explore: bool = True, preprocess: bool = True
    ) -> tuple[Any, dict[str, Any], Any]:
        self.check_masks(observations)
        actions, log_probs, after = self.actor.act(
            observations, recurrent_state, episode_start, explore=explore, preprocess=preprocess
        )
        return actions, {"log_probs": log_probs}, after

    def get_actions(
        self, observations: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        single = is_single(self.observation_space, observations)
        batch = add_axis(observations) if single else observations
        if self.recurrent:
            names = list(range(_rows(batch))) if env_ids is None else list(env_ids)
            self._check_names(names, _rows(batch))
            actions, extra = self._act_by_name(batch, names, explore, preprocess)
        else:
            actions, log_probs = self.act(batch, explore, preprocess)
            extra = {"log_probs": log_probs}
            names = list(range(len(log_probs))) if env_ids is None else list(env_ids)
            self._check_names(names, len(log_probs))
        own, actions = actions, self.env_actions(actions)
        if explore:  # a greedy look is for evaluation, and no step of an environment
            for row, name in enumerate(names):
                self._acted[name] = tree_map(operator.itemgetter(row), (own, extra, actions))
        return first_row(actions) if single else actions

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_state: Any = None,
        env_id: Any = 0,
    ) -> None:
        if env_id not in self._acted:
            raise ExecutionError(
                "a step was observed whose action this agent did not choose",
                where=f"environment {env_id!r}",
                fix="call get_actions(observations, env_ids=[...]) before observe(..., env_id=...)",
            )
        own, extra, chosen = self._acted[env_id]
        state, action, reward, next_state = self._fit_step(state, action, reward, next_state, env_id)
        if not same(action, chosen):
            raise ExecutionError(
                "another action was observed than the one this agent chose",
                where=f"environment {env_id!r}",
                received=f"{action}, chosen was {chosen}",
                fix=f"{self.name} learns from its own actions only; pass the action of the last get_actions",
            )
        self._trajectories.observe(env_id, state, own, reward, terminated, truncated, next_state, **extra)
        del self._acted[env_id]
        if terminated or truncated:
            self.begin_episodes([env_id])
        self.count_steps(1)

    # -- learning ------------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether enough was observed for an update without a batch."""
        return self._trajectories.complete(self.num_envs)

    def update(self, batch: Batch | None = None) -> Metrics:
        """Learns from a rollout.

        Args:
            batch: Dict of arrays (T, B, ...) as `batch_space` says; None takes what was observed.

        Raises:
            ExecutionError: Without a batch, when fewer than `rollout_steps` steps of `num_envs` environments were
                observed.
        """
        batch = self._given_or_observed(batch)
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_actor()
        return {
            **self._checked(metrics),
            "gradient_steps": self.config.epochs * self.config.minibatches,
            "trained_samples": self.config.epochs * self.config.rollout_steps * self.num_envs,
        }

    def _given_or_observed(self, batch: Batch | None) -> Batch:
        """The batch itself, or what was observed.

        Raises:
            ExecutionError: Not enough was.
        """
        if batch is not None:
            return batch
        if not self.ready():
            raise ExecutionError(
                "there is not enough to learn from yet",
                where=f"{self.name}.update",
                received=f"{self._trajectories.lengths()} steps by environment",
                fix=f"observe {self.config.rollout_steps} steps of each of {self.num_envs} environments",
            )
        return with_initial_state(self._trajectories.take(self.num_envs))

    def postprocess(self, batch: Batch) -> Batch:
        return self.executor.postprocess(batch)

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._copy_to_actor()


def with_initial_state(batch: Batch) -> Batch:
    """A rollout (T, B, ...) whose `recurrent_state` before each step is reduced to `initial_state`, (B, ...)."""
    if "recurrent_state" not in batch:
        return batch
    kept = {name: value for name, value in batch.items() if name != "recurrent_state"}
    return {**kept, "initial_state": first_row(batch["recurrent_state"])}


def _rows(structure: Any) -> int:
    """Leading size of a nested batch."""
    return len(next(leaves_of(structure, np.ndarray)))

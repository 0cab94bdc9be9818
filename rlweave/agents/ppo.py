"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), clipped, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rlweave import graph, ops
from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.config import setting
from rlweave.agents.trajectories import TrajectoryAssembler, add_axis, bounds_of, clipped, first_row, is_single, same
from rlweave.components import (
    GeneralizedAdvantageEstimation,
    Policy,
    PPOLoss,
    RunningNormalization,
    ValueFunction,
)
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.building import InputSpace
from rlweave.graph.ir import map_structure
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space


class PPOConfig(AgentConfig):
    """Settings of PPO."""

    network: list[dict[str, Any]] = setting(
        [
            {"type": "dense", "units": 64, "activation": "tanh"},
            {"type": "dense", "units": 64, "activation": "tanh"},
        ],
        "layers of the policy and of the value function",
    )
    image_network: list[dict[str, Any]] = setting([], "layers that image observations go through first")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    gae_lambda: float = setting(0.95, "lambda of generalized advantage estimation", ge=0, le=1)
    rollout_steps: int = setting(128, "steps of each environment between two updates", ge=1, unit="steps")
    epochs: int = setting(4, "passes over the rollout in an update", ge=1)
    minibatches: int = setting(4, "minibatches in each pass", ge=1)
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(3e-4, "learning rate, or a schedule over optimizer steps")
    max_grad_norm: float | None = setting(0.5, "global norm that gradients are clipped to; null: not clipped")
    clip: float = setting(0.2, "clip range of the probability ratio", gt=0)
    value_clip: float | None = setting(None, "clip range of the value function; null: not clipped")
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus", ge=0)
    normalize_advantages: bool = setting(True, "normalize advantages in each minibatch")
    normalize_states: bool = setting(False, "running normalization of float observations")
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)


class PPOGraph(Component):
    """The component graph of PPO.

    Args:
        policy: The actor.
        value_function: The critic.
        advantages: Advantage estimation.
        loss: The PPO loss.
        optimizer: One optimizer for both.
        normalization: Running normalization of observations, or None.
        epochs: Passes over a rollout.
        minibatches: Minibatches in a pass; what does not fill the last one is left out of that pass, at random.
        reward_scale: Factor on rewards.
    """

    def __init__(
        self,
        policy: Policy,
        value_function: ValueFunction,
        advantages: GeneralizedAdvantageEstimation,
        loss: PPOLoss,
        optimizer: Component,
        normalization: RunningNormalization | None,
        epochs: int,
        minibatches: int,
        reward_scale: float = 1.0,
        scope: str = "ppo",
    ) -> None:
        super().__init__(scope)
        self.policy, self.value_function = policy, value_function
        self.normalization = normalization
        self.advantages, self.loss, self.optimizer = advantages, loss, optimizer
        self.epochs, self.minibatches, self.reward_scale = epochs, minibatches, reward_scale

    @api(static=("explore", "preprocess"))
    def act(self, states: Any, explore: bool = True, preprocess: bool = True) -> Any:
        """Actions and their log-probabilities for observations (B, ...)."""
        return self.policy.act(self._normalized(states) if preprocess else states, explore=explore)

    @api
    def update(self, batch: Any) -> Any:
        """Learns from a rollout (T, B, ...): advantages once, then epochs x minibatches of optimizer steps."""
        rows = self.postprocess(batch)
        graph.repeat(self.epochs, lambda: self._epoch(rows))
        if self.normalization is not None:
            # after the update, so that the ratio is 1 at the first minibatch of the next one
            self.normalization.update(batch["states"])

    def _epoch(self, rows: Any) -> None:
        def step(carry: Any, indices: Any) -> Any:
            self._step(graph.batch_rank(self._take(rows, indices)))
            return carry, None

        graph.scan(step, (), self._shuffle(rows["log_probs"]))

    def _step(self, minibatch: Any) -> None:
        loss = self._minibatch_loss(minibatch)
        self.optimizer.step(loss, self.trained())

    @api
    def postprocess(self, batch: Any) -> Any:
        """Rows (T*B, ...) with advantages and value targets from a rollout (T, B, ...).

        `next_states` are the true next observations: the final one where an episode ended.
        """
        states, next_states = self._normalized(batch["states"]), self._normalized(batch["next_states"])
        values, next_values = self.value_function.call(states), self.value_function.call(next_states)
        advantages, targets = self.advantages.estimate(
            self._scale(batch["rewards"]), values, next_values, batch["terminated"], batch["truncated"]
        )
        return self._fold(
            {
                "states": states,
                "actions": batch["actions"],
                "log_probs": batch["log_probs"],
                "values": values,
                "advantages": advantages,
                "value_targets": targets,
            }
        )

    @api
    def gradients(self, rows: Any) -> Any:
        """Gradients of the loss on post-processed rows, by variable path."""
        return graph.gradients(self._minibatch_loss(rows), self.trained())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        self.optimizer.apply(gradients, self.trained())

    def _minibatch_loss(self, rows: Any) -> Any:
        log_probs, entropies = self.policy.log_prob_and_entropy(rows["states"], rows["actions"])
        loss, metrics = self.loss.loss(
            log_probs,
            rows["log_probs"],
            rows["advantages"],
            self.value_function.call(rows["states"]),
            rows["value_targets"],
            entropies,
            rows["values"] if self.loss.value_clip is not None else None,
        )
        for name, value in metrics.items():
            graph.metric(name, value)
        return loss

    def trained(self) -> Any:
        """Variables that the optimizer moves."""
        return self.policy.variables() + self.value_function.variables()

    def _normalized(self, states: Any) -> Any:
        return states if self.normalization is None else self.normalization.call(states)

    @graph_fn(split=True, differentiable=False)
    def _fold(self, leaf: Any) -> Any:
        return ops.fold_ranks(leaf, 2)

    @graph_fn
    def _scale(self, rewards: Any) -> Any:
        return rewards * self.reward_scale

    @graph_fn(spaces="_shuffle_spaces")
    def _shuffle(self, rows: Any) -> Any:
        """Random indices (M, N // M) of N rows for M minibatches."""
        size = rows.shape[0] // self.minibatches
        return ops.reshape(ops.random.permutation(rows.shape[0])[: self.minibatches * size], (self.minibatches, size))

    def _shuffle_spaces(self, rows: Any) -> Any:
        size = rows.concrete_shape({})[0] // self.minibatches
        return IntBox(shape=(self.minibatches, size))

    def _take(self, rows: Any, indices: Any) -> Any:
        return self._take_rows(rows, indices)

    @graph_fn(flatten=True, differentiable=False)
    def _take_rows(self, rows: Any, indices: Any) -> Any:
        chosen = next(iter(indices.values()))
        return {key: ops.take(leaf, chosen, axis=0) for key, leaf in rows.items()}


class PPO(Agent):
    """PPO for discrete, multi-discrete, box and nested action spaces.

    Args:
        state_space: Space of one observation.
        action_space: Space of one action.
        config: `PPOConfig` or its data.
        num_envs: Environments whose rollouts make one update.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "ppo"
    config_class = PPOConfig
    config: PPOConfig
    acting_prefixes: ClassVar[tuple[str, ...]] = ("policy", "normalization")

    def __init__(
        self,
        state_space: Space,
        action_space: Space,
        config: PPOConfig | Mapping[str, Any] | None = None,
        *,
        num_envs: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(state_space, action_space, config, backend=backend, seed=seed)
        self.num_envs = num_envs
        rows = self.config.rollout_steps * num_envs
        if rows % self.config.minibatches:
            raise ConfigError(
                "the rollout cannot be cut into equal minibatches",
                where="minibatches",
                received=f"{rows} rows ({self.config.rollout_steps} steps x {num_envs} environments) "
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
        self._trajectories = TrajectoryAssembler(self.config.rollout_steps)
        self._acted: dict[Any, tuple[Any, Any]] = {}
        self._bounds = bounds_of(self.action_space)

    def make_root(self) -> PPOGraph:
        return PPOGraph(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        config = self.config
        encoder: dict[str, Any] = {
            "network": config.network,
            "image_network": config.image_network or None,
            "state_space": self.state_space,
            "initializer": "orthogonal",
        }
        return {
            "policy": Policy(action_space=self.action_space, **encoder),
            "value_function": ValueFunction(**encoder),
            "advantages": GeneralizedAdvantageEstimation(config.discount, config.gae_lambda),
            "loss": PPOLoss(
                clip=config.clip,
                value_clip=config.value_clip,
                value_coefficient=config.value_coefficient,
                entropy_coefficient=config.entropy_coefficient,
                normalize_advantages=config.normalize_advantages,
            ),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "normalization": RunningNormalization() if config.normalize_states else None,
            "epochs": config.epochs,
            "minibatches": config.minibatches,
            "reward_scale": config.reward_scale,
        }

    def batch_space(self) -> Space:
        """Space of the batch that `update` takes: (T, B, ...)."""
        leaves = {
            "states": self.state_space,
            "next_states": self.state_space,
            "actions": self.action_space,
            "log_probs": FloatBox(),
            "rewards": FloatBox(),
            "terminated": BoolBox(),
            "truncated": BoolBox(),
        }
        return Dict(leaves).with_batch_rank(self.num_envs).with_time_rank(self.config.rollout_steps)

    def input_spaces(self) -> dict[str, InputSpace]:
        batch = self.batch_space()
        rows = {
            "states": self.state_space,
            "actions": self.action_space,
            "log_probs": FloatBox(),
            "values": FloatBox(),
            "advantages": FloatBox(),
            "value_targets": FloatBox(),
        }
        return {
            "states": self.state_space.with_batch_rank(),
            "batch": batch,
            "rows": Dict(rows).with_batch_rank(),
            "gradients": lambda root: root.trained(),
        }

    # -- acting --------------------------------------------------------------------------------------------------

    def act(self, states: Any, explore: bool = True, preprocess: bool = True) -> tuple[Any, np.ndarray]:
        """Actions (B, ...) and their log-probabilities (B,) for a batch of observations."""
        actions, log_probs = self.actor.act(states, explore=explore, preprocess=preprocess)
        return actions, log_probs

    def get_actions(
        self, states: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        single = is_single(self.state_space, states)
        batch = add_axis(states) if single else states
        actions, log_probs = self.act(batch, explore, preprocess)
        names = list(env_ids) if env_ids is not None else list(range(len(log_probs)))
        if len(names) != len(log_probs) or len(set(names)) != len(names):
            raise ExecutionError(
                "each row of the observations needs the name of its environment",
                where="ppo.get_actions",
                received=f"{len(log_probs)} rows, env_ids={names}",
                fix="pass one distinct name per row",
            )
        if explore:  # a greedy look is for evaluation, and no step of an environment
            for row, name in enumerate(names):
                self._acted[name] = map_structure(operator.itemgetter(row), (actions, log_probs))
        actions = self.env_actions(actions)
        return first_row(actions) if single else actions

    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them: those of a box are clipped to its bounds, the rest stay."""
        return actions if self._bounds is None else clipped(actions, self._bounds)

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
                fix="call get_actions(states, env_ids=[...]) before observe(..., env_id=...)",
            )
        # the distribution's own action (a box action may have been clipped for the environment) and its probability
        chosen, log_prob = self._acted[env_id]
        state, action, reward, next_state = self._fit_step(state, action, reward, next_state, env_id)
        if not same(action, self.env_actions(chosen)):
            raise ExecutionError(
                "another action was observed than the one this agent chose",
                where=f"environment {env_id!r}",
                received=f"{action}, chosen was {self.env_actions(chosen)}",
                fix="PPO learns from its own actions only; pass the action of the last get_actions",
            )
        self._trajectories.observe(env_id, state, chosen, reward, terminated, truncated, next_state, log_probs=log_prob)
        del self._acted[env_id]
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
        if batch is None:
            if not self.ready():
                raise ExecutionError(
                    "there is not enough to learn from yet",
                    where="ppo.update",
                    received=f"{self._trajectories.lengths()} steps by environment",
                    fix=f"observe {self.config.rollout_steps} steps of each of {self.num_envs} environments",
                )
            batch = self._trajectories.take(self.num_envs)
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_actor()
        return {
            **self._checked(metrics),
            "gradient_steps": self.config.epochs * self.config.minibatches,
            "trained_samples": self.config.epochs * self.config.rollout_steps * self.num_envs,
        }

    def postprocess(self, batch: Batch) -> Batch:
        return self.executor.postprocess(batch)

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._copy_to_actor()

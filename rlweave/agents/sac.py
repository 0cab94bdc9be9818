"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1801.01290), with the learned temperature of arXiv:1812.05905."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave import graph, ops
from rlweave.agents.continuous import ContinuousAgent, ContinuousConfig
from rlweave.agents.fused_replay import FusedReplayAgent, FusedReplayGraph
from rlweave.agents.replay_agent import ReplayGraph
from rlweave.components import CriticLoss, Critics, Policy, SoftPolicyLoss, Temperature
from rlweave.components.action_leaves import FLOATS, ActionLeaf, action_leaves
from rlweave.graph import Component, api, graph_fn
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.tree import tree_leaves


class SACConfig(ContinuousConfig):
    """Settings of SAC."""

    temperature: float = setting(1.0, "weight of the entropy; where it is learned, its first value", within=POSITIVE)
    learn_temperature: bool = setting(True, "the temperature moves so that the entropy comes to its target")
    target_entropy: float | None = setting(
        None,
        "entropy that the temperature aims at, in the environment's units; null: minus the number of action components "
        "plus the log of each half width, so that a box of any scale is explored like [-1, 1] with a target of -1 each",
        unit="nats",
        within=FINITE,
    )
    temperature_lr: float | dict[str, Any] = setting(
        3e-4, "learning rate of the temperature, or a schedule over optimizer steps", within=NOT_NEGATIVE
    )


class SACGraph(ReplayGraph):
    """The component graph of SAC.

    Args:
        policy: A squashed Gaussian policy.
        critics: Twin action values.
        temperature: Weight of the entropy.
        optimizers: Of "policy", "critics", and where it is learned "temperature".
        tau: Share by which the target critics move at an update.
        memory: See `ReplayGraph`.
        prefetch: See `ReplayGraph`.
    """

    def __init__(
        self,
        policy: Policy,
        critics: Critics,
        temperature: Temperature,
        optimizers: Mapping[str, Component],
        tau: float,
        memory: Component,
        prefetch: bool = False,
        scope: str = "sac",
    ) -> None:
        super().__init__(memory, prefetch, scope)
        self.policy, self.critics, self.temperature = policy, critics, temperature
        self.optimizers, self.tau = dict(optimizers), tau
        self.target_critics = critics.copy(scope="target-critics", trainable=False)
        self.loss, self.policy_loss = CriticLoss(), SoftPolicyLoss()
        self.log_scale = sum(map(_log_scale, policy.leaves))

    @api
    def act(self, observations: Any) -> Any:
        """Actions (B, ...) drawn for observations (B, ...), and no state after the step."""
        actions, _, after = self.policy.act(observations)
        return actions, after

    @api
    def act_greedily(self, observations: Any) -> Any:
        """The likeliest actions."""
        return self.policy.mode(observations)

    @api
    def fresh_actions(self, observations: Any) -> Any:
        """Actions of the present policy, nested (B, ...), and their log-densities in the environment's units, (B,)."""
        features, _ = self.policy.features(observations)
        parameters = self.policy.parameters_of(features, observations)
        # drawn beside what is differentiated, so that replicas have the noise of one device
        noise = self._noise(tree_leaves(observations)[0])
        actions, log_probs = self.policy.distribution.sample_and_log_prob(parameters, noise)
        return actions, self._in_units_of_environment(log_probs)

    @graph_fn(returns=1, differentiable=False)
    def _noise(self, rows: Any) -> Any:
        return {leaf.path: ops.random.normal((rows.shape[0], *leaf.shape)) for leaf in self.policy.leaves}

    def learn(self, records: Any, weights: Any) -> Any:
        alpha = self.temperature.alpha()
        targets = self._targets(records, alpha)
        values = self.critics.call(records["observations"], records["actions"])
        loss = self.loss.loss(values, targets, weights)
        graph.metrics(self.optimizers["critics"].step(loss, self.critics.variables()))
        actions, log_probs = self.fresh_actions(records["observations"])
        actor_loss = self.policy_loss.loss(log_probs, self.critics.call(records["observations"], actions), alpha)
        self.optimizers["policy"].step(actor_loss, self.policy.variables())
        if "temperature" in self.optimizers:
            temperature_loss = self.temperature.loss(log_probs)
            self.optimizers["temperature"].step(temperature_loss, self.temperature.variables())
        self.target_critics.sync(self.critics, self.tau)
        graph.metrics({"policy_loss": actor_loss, "temperature": alpha, "entropy": self._entropy(log_probs)})
        return loss, self.loss.sizes(values, targets)

    def _targets(self, records: Any, alpha: Any) -> Any:
        actions, log_probs = self.fresh_actions(records["next_observations"])
        values = self.target_critics.call(records["next_observations"], actions)
        return self.loss.targets(
            records["rewards"], records["terminated"], records["discounts"], values, log_probs, alpha
        )

    @graph_fn
    def _in_units_of_environment(self, log_probs: Any) -> Any:
        return log_probs - self.log_scale

    @graph_fn(differentiable=False)
    def _entropy(self, log_probs: Any) -> Any:
        return -ops.mean(log_probs)


def _log_scale(leaf: ActionLeaf) -> float:
    """Log of the volume of the environment's box over that of the policy's, over all components of a leaf."""
    return float(np.sum(np.log(np.broadcast_to(np.asarray(leaf.divisor, np.float64), leaf.shape))))


class SAC(ContinuousAgent):
    """SAC for floating-point actions of any shape and bounds, and nests of them.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `SACConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "sac"
    learns_in_ranks = True
    config_class = SACConfig
    config: SACConfig

    graph_class: ClassVar[type[SACGraph]] = SACGraph

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        learned = {"temperature": self.make_optimizer(config.temperature_lr, "temperature-optimizer")}
        optimizers = {
            "policy": self.make_optimizer(scope="policy-optimizer"),
            "critics": self.make_optimizer(scope="critics-optimizer"),
        }
        target = self._default_target_entropy() if config.target_entropy is None else config.target_entropy
        encoder = self.encoder_arguments()
        return super().graph_arguments() | {
            "policy": Policy(**encoder, action_space=self.action_space, log_std="head", squash=True),
            "critics": Critics(**encoder),
            "temperature": Temperature(target, config.temperature, trainable=config.learn_temperature),
            "optimizers": optimizers | (learned if config.learn_temperature else {}),
            "tau": config.tau,
        }

    def _default_target_entropy(self) -> float:
        """Minus the number of action components where [-1, 1] is the box (arXiv:1812.05905), in the box's own units."""
        leaves = action_leaves(self.action_space, self.name, FLOATS)
        return sum(_log_scale(leaf) - leaf.size for leaf in leaves)


class FusedSACGraph(FusedReplayGraph, SACGraph):
    """The component graph of SAC with its environments."""


class FusedSAC(FusedReplayAgent, SAC):
    """SAC on environments that are components; see `FusedReplayAgent`."""

    graph_class: ClassVar[type[FusedSACGraph]] = FusedSACGraph

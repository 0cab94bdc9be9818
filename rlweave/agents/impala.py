"""IMPALA (Espeholt et al. 2018, arXiv:1802.01561): an actor-critic that learns from steps of older policies."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rlweave import graph, ops
from rlweave.agents.actor_critic import ActorCriticAgent, ActorCriticConfig
from rlweave.agents.actor_critic_graph import ActorCriticGraph, memory_of
from rlweave.agents.agent import ReplicatedConfig
from rlweave.components import ActorCriticLoss, VTrace
from rlweave.components.vtrace import LARGEST_LOG_RATIO
from rlweave.graph import Component, api, graph_fn
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE

Correction = Literal["vtrace", "none"]


class IMPALAConfig(ActorCriticConfig, ReplicatedConfig):
    """Settings of IMPALA."""

    rollout_steps: int = setting(20, "length of a trajectory", ge=1, unit="steps")
    off_policy_correction: Correction = setting(
        "vtrace", "how steps of older policies are weighted: vtrace; or none, as if they were the present policy's own"
    )
    rho_clip: float = setting(1.0, "largest weight of a TD error in V-trace", gt=0)
    c_clip: float = setting(1.0, "largest weight of a trace in V-trace, at most rho_clip", gt=0)
    policy_rho_clip: float = setting(1.0, "largest weight of an advantage", gt=0)
    trace_decay: float = setting(1.0, "lambda: decay of traces, as in TD(lambda)", ge=0, le=1)
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart; the paper's is rmsprop")
    lr: float | dict[str, Any] = setting(6e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        40.0, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )


class OffPolicyRatios(Component):
    """Says how far the policy that is trained is from the one that acted: two metrics of an update.

    `mean_ratio` is the mean of pi(a|s) / mu(a|s), near 1 for any two policies where all actions are likely;
    `off_policy` is the mean of |ratio - 1|, 0 only where they are equal.
    """

    def __init__(self, scope: str = "off-policy-ratios") -> None:
        super().__init__(scope)

    @api
    def report(self, ratios: Any) -> None:
        """Reports on importance ratios, (T, B)."""
        mean, distance = self._summary(ratios)
        graph.metric("mean_ratio", mean)
        graph.metric("off_policy", distance)

    @graph_fn(returns=2, differentiable=False)
    def _summary(self, ratios: Any) -> Any:
        return ops.mean(ratios), ops.mean(ops.abs(ratios - 1.0))


class IMPALAGraph(ActorCriticGraph):
    """The component graph of IMPALA: one V-trace actor-critic step on each batch.

    Networks with a memory run from the state that the worker had when the rollout began, which older weights made: it
    is stored with the rollout, as in the paper.

    Args:
        corrected: False takes the steps as the present policy's own: n-step returns, "no-correction" in the paper.
        arguments: Those of `ActorCriticGraph`; `advantages` is a `VTrace`.
    """

    def __init__(self, *, corrected: bool, scope: str = "impala", **arguments: Any) -> None:
        super().__init__(scope=scope, **arguments)
        self.corrected = corrected
        self.ratios = OffPolicyRatios()

    @api
    def update(self, batch: Any) -> Any:
        """Learns from trajectories (T, B, ...): one forward pass, one optimizer step."""
        observations = self._normalized(batch["observations"])
        next_observations = self._normalized(batch["next_observations"])
        log_probs, entropies = self._policy_on(self.policy, observations, batch)
        _, state, start = memory_of(batch)
        values, next_values = self.value_function.look_ahead_values(observations, next_observations, state, start)
        targets, advantages = self._corrected(batch, log_probs, values, next_values)
        loss, metrics = self.loss.loss(log_probs, advantages, values, targets, entropies)
        graph.metrics(metrics)
        self._report_fit(targets, values)
        self._report_divergence(log_probs, batch["log_probs"])
        graph.metrics(self.optimizer.step(loss, self.trained()))
        if self.normalization is not None:
            self.normalization.merge(batch["observations"])

    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        log_probs, _ = self._policy_on(self.policy, observations, batch)
        targets, advantages = self._corrected(batch, log_probs, values, next_values)
        return batch["log_probs"], advantages, targets

    def _corrected(self, batch: Any, log_probs: Any, values: Any, next_values: Any) -> Any:
        """Value targets and advantages, (T, B)."""
        steps = self._rewards(batch), values, next_values, batch["terminated"], batch["truncated"]
        acted = batch["log_probs"]
        targets, advantages, ratios = self.advantages.estimate(log_probs if self.corrected else acted, acted, *steps)
        if not self.corrected:
            ratios = self._ratios(log_probs, acted)
        self.ratios.report(ratios)
        return targets, advantages

    @graph_fn(differentiable=False)
    def _ratios(self, log_probs: Any, acted: Any) -> Any:
        return ops.exp(ops.minimum(log_probs - acted, LARGEST_LOG_RATIO))


class IMPALA(ActorCriticAgent):
    """IMPALA for discrete, multi-discrete, box and nested action spaces.

    An update is one optimizer step on whole trajectories, of any number.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `IMPALAConfig` or its data.
        num_envs: Environments whose observed steps make one update without a batch.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "impala"
    learns_in_ranks = True
    config_class = IMPALAConfig
    config: IMPALAConfig
    graph_class: ClassVar[type[ActorCriticGraph]] = IMPALAGraph

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self.networks(),
            "advantages": VTrace(
                config.discount, config.rho_clip, config.c_clip, config.policy_rho_clip, config.trace_decay
            ),
            "corrected": config.off_policy_correction == "vtrace",
            "loss": ActorCriticLoss(config.value_coefficient, config.entropy_coefficient),
        }

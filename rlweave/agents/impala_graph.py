"""The component graph of IMPALA."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.agents.ppo_graph import PPOGraph
from rlweave.agents.recurrent_ppo_graph import RecurrentPPOGraph
from rlweave.components import IMPALALoss, Policy, RunningNormalization, ValueFunction, VTrace
from rlweave.components.vtrace import LARGEST_LOG_RATIO
from rlweave.graph import Component, api, graph_fn


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


class IMPALAGraph(PPOGraph):
    """The component graph of IMPALA (Espeholt et al. 2018): one V-trace actor-critic step on each batch.

    Args:
        policy: The actor.
        value_function: The critic.
        vtrace: Corrects for the policy that acted being an older one.
        corrected: False takes the steps as the present policy's own: n-step returns, "no-correction" in the paper.
        loss: The loss.
        optimizer: One optimizer for both.
        normalization: Running normalization of observations, or None.
        reward_scale: Factor on rewards.
    """

    def __init__(
        self,
        policy: Policy,
        value_function: ValueFunction,
        vtrace: VTrace,
        corrected: bool,
        loss: IMPALALoss,
        optimizer: Component,
        normalization: RunningNormalization | None,
        reward_scale: float = 1.0,
        scope: str = "impala",
    ) -> None:
        super().__init__(
            policy=policy,
            value_function=value_function,
            advantages=vtrace,
            loss=loss,
            optimizer=optimizer,
            normalization=normalization,
            epochs=1,
            minibatches=1,
            reward_scale=reward_scale,
            scope=scope,
        )
        self.corrected = corrected
        self.ratios = OffPolicyRatios()

    @api
    def update(self, batch: Any) -> Any:
        """Learns from trajectories (T, B, ...): one forward pass, one optimizer step."""
        observations, next_observations = (
            self._normalized(batch["observations"]),
            self._normalized(batch["next_observations"]),
        )
        log_probs, entropies = self._policy_on(observations, batch)
        values, next_values = self._values_on(observations, next_observations, batch)
        targets, advantages = self._corrected(batch, log_probs, values, next_values)
        loss = self._reported(self.loss.loss(log_probs, advantages, values, targets, entropies))
        self._report_fit(targets, values)
        graph.metrics(self.optimizer.step(loss, self.trained()))
        if self.normalization is not None:
            self.normalization.update(batch["observations"])

    def _corrected(self, batch: Any, log_probs: Any, values: Any, next_values: Any) -> Any:
        """Value targets and advantages, (T, B)."""
        steps = self._scale(batch["rewards"]), values, next_values, batch["terminated"], batch["truncated"]
        acted = batch["log_probs"]
        targets, advantages, ratios = self.advantages.estimate(log_probs if self.corrected else acted, acted, *steps)
        if not self.corrected:
            ratios = self._ratios(log_probs, acted)
        self.ratios.report(ratios)
        return targets, advantages

    def _policy_on(self, observations: Any, batch: Any) -> Any:
        """Log-probabilities of the taken actions and entropies, by the policy that is trained, (T, B)."""
        return self.policy.log_prob_and_entropy(observations, batch["actions"])

    def _values_on(self, observations: Any, next_observations: Any, batch: Any) -> Any:
        """Values of the observations, and of those that each step led to, (T, B)."""
        return self.value_function.call(observations), self.value_function.call(next_observations)

    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        log_probs, _ = self._policy_on(observations, batch)
        targets, advantages = self._corrected(batch, log_probs, values, next_values)
        return batch["log_probs"], advantages, targets

    def _minibatch_loss(self, rows: Any) -> Any:
        log_probs, entropies, values = self._predictions(rows)
        return self._reported(self.loss.loss(log_probs, rows["advantages"], values, rows["value_targets"], entropies))

    def _reported(self, loss_and_metrics: Any) -> Any:
        """The loss, after its parts were reported."""
        loss, metrics = loss_and_metrics
        graph.metrics(metrics)
        return loss

    @graph_fn(differentiable=False)
    def _ratios(self, log_probs: Any, acted: Any) -> Any:
        return ops.exp(ops.minimum(log_probs - acted, LARGEST_LOG_RATIO))


class RecurrentIMPALAGraph(IMPALAGraph, RecurrentPPOGraph):
    """IMPALA whose policy and value function carry a state from step to step.

    Sequences are run through from the state that the worker had when the rollout began, which older weights made: it
    is stored with the rollout, as in the paper.
    """

    def _policy_on(self, observations: Any, batch: Any) -> Any:
        return self.policy.recurrent_log_prob_and_entropy(
            observations, batch["actions"], batch["initial_state"]["policy"], batch["episode_start"]
        )

    def _values_on(self, observations: Any, next_observations: Any, batch: Any) -> Any:
        return self.value_function.look_ahead_values(
            observations, next_observations, batch["initial_state"]["value_function"], batch["episode_start"]
        )

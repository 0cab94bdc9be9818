"""The component graph that A2C, PPO, IMPALA and APPO share: a policy, a value function, and their loss."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.agents.minibatches import RowMinibatches
from rlweave.components import Policy, RunningNormalization, ValueFunction
from rlweave.graph import Component, api, graph_fn, shared
from rlweave.spaces import Dict, Space, Tuple


class ActorCritic(Component):
    """Acts, and carries the recurrent states of policy and value function along with each other.

    The value function is not asked for values while acting, but its state has to be known where a rollout begins.

    Args:
        policy: The policy, owned elsewhere.
        value_function: The value function, owned elsewhere.
        scope: Name within the owner.
    """

    def __init__(self, policy: Policy, value_function: ValueFunction, scope: str = "acting") -> None:
        super().__init__(scope)
        self.policy, self.value_function = shared(policy), shared(value_function)

    @property
    def recurrent_space(self) -> Space:
        """Space of both states of one environment, without ranks: `policy` and `value_function`; or `Tuple()`."""
        if not self.policy.is_recurrent:
            return Tuple()
        return Dict(policy=self.policy.recurrent_space, value_function=self.value_function.recurrent_space)

    @api(static=("explore",))
    def act(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None, explore: bool = True) -> Any:
        """As `Policy.act`, with both states."""
        of_policy, of_value_function = states_of(recurrent_state)
        actions, log_probs, after = self.policy.act(observations, of_policy, episode_start, explore=explore)
        if self.policy.is_recurrent:
            _, value_after = self.value_function.features(observations, of_value_function, episode_start)
            after = {"policy": after, "value_function": value_after}
        return actions, log_probs, after

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them."""
        return self.policy.env_actions(actions)


def states_of(recurrent_state: Any) -> tuple[Any, Any]:
    """The states of policy and value function in that of both, which is () without memory."""
    return (recurrent_state["policy"], recurrent_state["value_function"]) if recurrent_state else ((), ())


class ReportsDivergence(Component):
    """A graph that reports how far the policy that learns is from the one that acted: 0 without lag."""

    def _report_divergence(self, log_probs: Any, acted: Any) -> None:
        """Reports it, by log-probabilities of the actions."""
        graph.metric("approx_kl", self._divergence(log_probs, acted))

    @graph_fn(differentiable=False)
    def _divergence(self, log_probs: Any, acted: Any) -> Any:
        """Mean of r - 1 - log r (Schulman 2020), an estimate of the divergence: 0 where they are one policy."""
        log_ratio = log_probs - acted
        return ops.mean(ops.exp(log_ratio) - 1.0 - log_ratio)


class ActorCriticGraph(ReportsDivergence):
    """The component graph of an actor-critic.

    An algorithm says how it estimates advantages (`_estimates`) and what its loss is (`_loss`); `update` is one
    optimizer step on a whole rollout, unless it says otherwise.

    Args:
        policy: The policy.
        value_function: The value function.
        optimizer: One optimizer for both.
        minibatches: How a rollout is cut.
        advantages: Estimates advantages and value targets; None where `_estimates` does without.
        loss: The loss; None where `_loss` does without.
        normalization: Running normalization of observations, or None.
        reward_scale: Factor on rewards.
        scope: Name of the root.
    """

    def __init__(
        self,
        policy: Policy,
        value_function: ValueFunction,
        optimizer: Component,
        minibatches: RowMinibatches,
        advantages: Component | None = None,
        loss: Component | None = None,
        normalization: RunningNormalization | None = None,
        reward_scale: float = 1.0,
        scope: str = "actor-critic",
    ) -> None:
        super().__init__(scope)
        self.policy, self.value_function, self.normalization = policy, value_function, normalization
        self.optimizer, self.minibatches = optimizer, minibatches
        self.advantages: Any = advantages
        self.loss: Any = loss
        self.acting = ActorCritic(policy, value_function)
        self.reward_scale = reward_scale

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks."""
        return self.acting.recurrent_space

    @api(static=("explore", "preprocess"))
    def act(
        self,
        observations: Any,
        recurrent_state: Any = (),
        episode_start: Any = None,
        explore: bool = True,
        preprocess: bool = True,
    ) -> Any:
        """Actions, their log-probabilities, and the recurrent state after the step, for observations (B, ...)."""
        seen = self._normalized(observations) if preprocess else observations
        return self.acting.act(seen, recurrent_state, episode_start, explore=explore)

    @api
    def postprocess(self, batch: Any) -> Any:
        """Training rows from a rollout (T, B, ...), with advantages and value targets; see `minibatches`.

        `next_observations` are the true next ones: the final one where an episode ended. With memory,
        `initial_state` is the recurrent state before the first step, (B, ...).
        """
        observations = self._normalized(batch["observations"])
        next_observations = self._normalized(batch["next_observations"])
        values, next_values = self._values(observations, next_observations, batch)
        log_probs, advantages, targets = self._estimates(batch, observations, values, next_values)
        columns = {
            "observations": observations,
            "actions": batch["actions"],
            "log_probs": log_probs,
            "values": values,
            "advantages": advantages,
            "value_targets": targets,
        }
        return self.minibatches.arranged(columns, batch)

    @api
    def gradients(self, rows: Any) -> Any:
        """Gradients of the loss on post-processed rows, by variable path."""
        return graph.gradients(self._loss(rows), self.trained())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.trained()))

    def trained(self) -> Any:
        """Variables that the optimizer moves."""
        return self.policy.variables() + self.value_function.variables()

    # -- override points -----------------------------------------------------------------------------------------

    @api
    def update(self, batch: Any) -> Any:
        """Learns from a rollout (T, B, ...): one optimizer step."""
        rows = self.postprocess(batch)
        self._report_fit(rows["value_targets"], rows["values"])
        self._step(rows)
        if self.normalization is not None:
            self.normalization.merge(batch["observations"])

    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        """Behaviour log-probabilities, advantages, value targets, (T, B) each, of processed observations."""
        advantages, targets = self.advantages.estimate(
            self._rewards(batch), values, next_values, batch["terminated"], batch["truncated"]
        )
        return batch["log_probs"], advantages, targets

    def _loss(self, rows: Any) -> Any:
        """The loss on post-processed rows; reports its parts."""
        log_probs, entropies, values = self._predictions(rows)
        loss, metrics = self.loss.loss(log_probs, rows["advantages"], values, rows["value_targets"], entropies)
        graph.metrics(metrics)
        self._report_divergence(log_probs, rows["log_probs"])
        return loss

    # -- parts ---------------------------------------------------------------------------------------------------

    def _step(self, rows: Any) -> None:
        """One optimizer step on rows."""
        graph.metrics(self.optimizer.step(self._loss(rows), self.trained()))

    def _predictions(self, rows: Any) -> Any:
        """Log-probabilities of the actions, entropies and values, by the networks that are trained."""
        observations, actions = rows["observations"], rows["actions"]
        if self.value_function.shares_encoder_of(self.policy):
            features, _ = self.policy.features(observations)
            log_probs, entropies = self.policy.log_prob_and_entropy_of(features, observations, actions)
            return log_probs, entropies, self.value_function.of_features(features)
        _, state, start = memory_of(rows)
        log_probs, entropies = self._policy_on(self.policy, observations, rows)
        return log_probs, entropies, self.value_function.call(observations, state, start)

    def _policy_on(self, policy: Policy, observations: Any, batch: Any) -> Any:
        """Log-probabilities of the taken actions and entropies, by a policy, on processed observations."""
        state, _, start = memory_of(batch)
        return policy.log_prob_and_entropy(observations, batch["actions"], state, start)

    def _values(self, observations: Any, next_observations: Any, batch: Any) -> Any:
        """Values of observations, and of those that each step led to, (T, B).

        The latter are by the state after the step: where an episode was truncated, that of the episode that ended.
        Where an image network would see every observation twice, a next observation that is the one of the next step
        has the value that is known; all are computed only if an episode was cut within the rollout.
        """
        _, state, start = memory_of(batch)
        if not self.value_function.network.image_networks or self.value_function.is_recurrent:
            return self.value_function.look_ahead_values(observations, next_observations, state, start)
        values = self.value_function.call(observations)
        last = self.value_function.call(self._last(next_observations))
        next_values = graph.cond(
            self._is_cut(observations, next_observations, batch["terminated"]),
            lambda: self.value_function.call(next_observations),
            lambda: self._shifted(values, last),
        )
        return values, next_values

    @graph_fn(split=True, differentiable=False)
    def _last(self, leaf: Any) -> Any:
        return leaf[-1]

    @graph_fn(differentiable=False)
    def _shifted(self, values: Any, last: Any) -> Any:
        return ops.concat([values[1:], ops.expand_dims(last, 0)], axis=0)

    @graph_fn(flatten=True, differentiable=False)
    def _is_cut(self, observations: Any, next_observations: Any, terminated: Any) -> Any:
        """Whether the observation after a step that is not terminal differs from the next row's: an episode was cut."""
        goes_on = ops.logical_not(next(iter(terminated.values()))[:-1])
        found = ops.any(ops.zeros_like(goes_on))
        for path, leaf in observations.items():
            differs = ops.not_equal(leaf[1:], next_observations[path][:-1])
            if differs.ndim > 2:
                differs = ops.any(differs, axis=tuple(range(2, differs.ndim)))
            found = ops.logical_or(found, ops.any(ops.logical_and(differs, goes_on)))
        return found

    def _report_fit(self, targets: Any, values: Any) -> None:
        graph.metric("explained_variance", self._explained_variance(targets, values))

    @graph_fn(differentiable=False, mixes_batch=True)
    def _explained_variance(self, targets: Any, values: Any) -> Any:
        """1 - Var[targets - values] / Var[targets]: 1 for a perfect value function, 0 where all targets are equal."""
        variance = ops.mean(ops.square(targets - ops.mean(targets)))
        errors = targets - values
        unexplained = ops.mean(ops.square(errors - ops.mean(errors)))
        varies = variance > 0.0
        return ops.where(varies, 1.0 - unexplained / ops.where(varies, variance, 1.0), 0.0)

    def _normalized(self, observations: Any) -> Any:
        return observations if self.normalization is None else self.normalization.call(observations)

    def _rewards(self, batch: Any) -> Any:
        """Rewards as they are learned from, (T, B)."""
        return self._scale(batch["rewards"])

    @graph_fn
    def _scale(self, rewards: Any) -> Any:
        return rewards * self.reward_scale


def memory_of(batch: Any) -> tuple[Any, Any, Any]:
    """States of policy and value function before the first step, and episode starts: (), () and None without memory."""
    return *states_of(batch.get("initial_state", ())), batch.get("episode_start")

"""The component graph of PPO."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components import Policy, RewardNormalization, RunningNormalization, ValueFunction
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import IntBox


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
        reward_normalization: Running normalization of rewards, or None.
    """

    def __init__(
        self,
        policy: Policy,
        value_function: ValueFunction,
        advantages: Component,
        loss: Component,
        optimizer: Component,
        normalization: RunningNormalization | None,
        epochs: int,
        minibatches: int,
        reward_scale: float = 1.0,
        reward_normalization: RewardNormalization | None = None,
        scope: str = "ppo",
    ) -> None:
        super().__init__(scope)
        self.policy, self.value_function = policy, value_function
        self.normalization, self.reward_normalization = normalization, reward_normalization
        self.advantages, self.loss, self.optimizer = advantages, loss, optimizer
        self.epochs, self.minibatches, self.reward_scale = epochs, minibatches, reward_scale

    @api(static=("explore", "preprocess"))
    def act(self, observations: Any, explore: bool = True, preprocess: bool = True) -> Any:
        """Actions and their log-probabilities for observations (B, ...)."""
        return self.policy.act(self._normalized(observations) if preprocess else observations, explore=explore)

    @api
    def update(self, batch: Any) -> Any:
        """Learns from a rollout (T, B, ...): advantages once, then epochs x minibatches of optimizer steps."""
        if self.reward_normalization is not None:
            self.reward_normalization.update(batch["rewards"], batch["terminated"], batch["truncated"])
        rows = self.postprocess(batch)
        self._report_fit(rows["value_targets"], rows["values"])
        graph.repeat(self.epochs, lambda: self._epoch(rows))
        if self.normalization is not None:
            # after the update, so that the ratio is 1 at the first minibatch of the next one
            self.normalization.update(batch["observations"])

    def _epoch(self, rows: Any) -> None:
        def step(carry: Any, indices: Any) -> Any:
            self._step(graph.batch_rank(self._take(rows, indices)))
            return carry, None

        graph.scan(step, (), self._shuffle(rows["log_probs"]))

    def _step(self, minibatch: Any) -> None:
        loss = self._minibatch_loss(minibatch)
        graph.metrics(self.optimizer.step(loss, self.trained()))

    @api
    def postprocess(self, batch: Any) -> Any:
        """Rows (T*B, ...) with advantages and value targets from a rollout (T, B, ...).

        `next_observations` are the true next observations: the final one where an episode ended.
        """
        observations, next_observations = (
            self._normalized(batch["observations"]),
            self._normalized(batch["next_observations"]),
        )
        values = self.value_function.call(observations)
        next_values = self._next_values(observations, next_observations, values, batch["terminated"])
        log_probs, advantages, targets = self._estimates(batch, observations, values, next_values)
        return self._fold(
            {
                "observations": observations,
                "actions": batch["actions"],
                "log_probs": log_probs,
                "values": values,
                "advantages": advantages,
                "value_targets": targets,
            }
        )

    def _next_values(self, observations: Any, next_observations: Any, values: Any, terminated: Any) -> Any:
        """Values of the next observations, (T, B).

        Where an image network would see every observation twice, a next state that is the state of the next step has
        the value that is known; all are computed only if an episode was cut within the rollout.
        """
        if not self.value_function.network.image_networks:
            return self.value_function.call(next_observations)
        last = self.value_function.call(self._last(next_observations))
        return graph.cond(
            self._is_cut(observations, next_observations, terminated),
            lambda: self.value_function.call(next_observations),
            lambda: self._shifted(values, last),
        )

    @graph_fn(split=True, differentiable=False)
    def _last(self, leaf: Any) -> Any:
        return leaf[-1]

    @graph_fn(differentiable=False)
    def _shifted(self, values: Any, last: Any) -> Any:
        return ops.concat([values[1:], ops.expand_dims(last, 0)], axis=0)

    @graph_fn(flatten=True, differentiable=False)
    def _is_cut(self, observations: Any, next_observations: Any, terminated: Any) -> Any:
        """Whether some step led to another state than the next one, and not to an end of which nobody needs a value."""
        goes_on = ops.logical_not(next(iter(terminated.values()))[:-1])
        found = ops.any(ops.zeros_like(goes_on))
        for path, leaf in observations.items():
            differs = ops.not_equal(leaf[1:], next_observations[path][:-1])
            if differs.ndim > 2:
                differs = ops.any(differs, axis=tuple(range(2, differs.ndim)))
            found = ops.logical_or(found, ops.any(ops.logical_and(differs, goes_on)))
        return found

    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        """Log-probabilities before the update, advantages and value targets, of processed `observations` (T, B)."""
        advantages, targets = self.advantages.estimate(
            self._rewards(batch), values, next_values, batch["terminated"], batch["truncated"]
        )
        return batch["log_probs"], advantages, targets

    @api
    def gradients(self, rows: Any) -> Any:
        """Gradients of the loss on post-processed rows, by variable path."""
        return graph.gradients(self._minibatch_loss(rows), self.trained())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.trained()))

    def _minibatch_loss(self, rows: Any) -> Any:
        log_probs, entropies, values = self._predictions(rows)
        loss, metrics = self.loss.loss(
            log_probs,
            rows["log_probs"],
            rows["advantages"],
            values,
            rows["value_targets"],
            entropies,
            rows["values"] if self.loss.value_clip is not None else None,
        )
        graph.metrics(metrics)
        return loss

    def _predictions(self, rows: Any) -> Any:
        """Log-probabilities of the actions, entropies and values, by the networks that are trained."""
        observations = rows["observations"]
        if not self.value_function.shares_trunk_of(self.policy):
            return *self.policy.log_prob_and_entropy(observations, rows["actions"]), self.value_function.call(
                observations
            )
        features = self.policy.features(observations)
        log_probs, entropies = self.policy.log_prob_and_entropy_of_features(features, observations, rows["actions"])
        return log_probs, entropies, self.value_function.of_features(features)

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

    def trained(self) -> Any:
        """Variables that the optimizer moves."""
        return self.policy.variables() + self.value_function.variables()

    @property
    def actor(self) -> Component:
        """What chooses actions in environments."""
        return self.policy

    def _normalized(self, observations: Any) -> Any:
        return observations if self.normalization is None else self.normalization.call(observations)

    @graph_fn(split=True, differentiable=False)
    def _fold(self, leaf: Any) -> Any:
        return ops.fold_ranks(leaf, 2)

    def _rewards(self, batch: Any) -> Any:
        """Rewards as they are learned from, (T, B)."""
        rewards = batch["rewards"]
        return self._scale(rewards if self.reward_normalization is None else self.reward_normalization.call(rewards))

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

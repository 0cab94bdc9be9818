"""The loss of deep Q-learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave import ops
from rlweave.errors import BuildError, ConfigError, nearest
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import AT_LEAST_ONE, POSITIVE, PROBABILITY
from rlweave.tree import flatten_tree

REDUCTIONS = ("loss", "td")


@register("dqn_loss")
class DQNLoss(Component):
    """Squared (or Huber) temporal-difference error of chosen actions (Mnih et al. 2015).

    target = rewards + discount^n_step * (1 - terminated) * next value, where the next value is
    max_a target_q_next[a], or for double Q-learning (van Hasselt et al. 2016)
    target_q_next[argmax_a online_q_next[a]]. Per item 0.5 * (target - q[action])^2, or the Huber loss of the same
    error; then weighted and averaged. The target is a constant for the gradient.

    Actions with several components (an action shape of (3,) or (2, 2), or several leaves of a nested space) have one
    q-function each, all with the same reward (Tavakoli et al. 2018); all components count alike.

    Args:
        discount: Per step, in [0, 1].
        n_step: Steps that `rewards` sums up; see the argument `discounts` for windows of different lengths.
        double: Next actions are chosen by `online_q_next` and valued by `target_q_next`.
        huber_delta: Errors above it count linearly; None: squared error throughout.
        reduce_components: "loss" averages the losses of the components of an action, "td" (RLgraph's way) averages
            their errors first, where those of opposite sign cancel. Without components both are the same.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    def __init__(
        self,
        discount: float = 0.99,
        n_step: int = 1,
        double: bool = True,
        huber_delta: float | None = 1.0,
        reduce_components: str = "loss",
        scope: str = "dqn-loss",
    ) -> None:
        super().__init__(scope)
        PROBABILITY.check("discount", discount, scope)
        AT_LEAST_ONE.check("n_step", n_step, scope)
        POSITIVE.check("huber_delta", huber_delta, scope, optional=True)
        if reduce_components not in REDUCTIONS:
            raise ConfigError(
                "unknown way to reduce components",
                received=repr(reduce_components),
                fix=nearest(reduce_components, REDUCTIONS),
            )
        self.discount, self.n_step, self.double = discount, n_step, double
        self.huber_delta, self.reduce_components = huber_delta, reduce_components

    @api
    def td_loss(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        target_q_next: Any,
        online_q_next: Any = None,
        weights: Any = None,
        discounts: Any = None,
    ) -> Any:
        """The mean loss, and errors for priorities.

        Args:
            q_values: Of the observations, by the network that is trained, (B, *action_shape, A); of a nested action
                space nested like it.
            actions: Taken ones, int or bool, (B, *action_shape), nested alike.
            rewards: Float, (B,); of n steps their discounted sum.
            terminated: Bool, (B,): nothing comes after the next observations. (Truncated ones are bootstrapped: False.)
            target_q_next: Of the next observations, by the target network, (B, *action_shape, A).
            online_q_next: Of the next observations, by the network that is trained; for double Q-learning only.
            weights: Importance weights (B,), which multiply the per-item loss; None: 1.
            discounts: Float, (B,): discount^(steps used) of each item, where windows differ (they end at episode
                ends); None: discount^n_step.

        Returns:
            The loss, a scalar; sizes of the temporal-difference errors, (B,), at least 0 and unweighted: of
            components the mean size ("loss") or the size of the mean ("td").

        Raises:
            BuildError: `online_q_next` is missing for double Q-learning, or given without.
        """
        chosen, targets = self._chosen_and_targets(
            q_values, actions, rewards, terminated, target_q_next, online_q_next, discounts
        )
        return self._mean_loss(chosen, targets, rewards, weights), self._sizes(chosen, targets, rewards)

    @api
    def loss_per_item(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        target_q_next: Any,
        online_q_next: Any = None,
        weights: Any = None,
        discounts: Any = None,
    ) -> Any:
        """As `td_loss`, but the loss of each item, (B,), weighted."""
        chosen, targets = self._chosen_and_targets(
            q_values, actions, rewards, terminated, target_q_next, online_q_next, discounts
        )
        return self._losses(chosen, targets, rewards, weights), self._sizes(chosen, targets, rewards)

    # Small graph functions: only what needs a gradient is recorded for it, and unused results are dropped.

    def _chosen_and_targets(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        target_q_next: Any,
        online_q_next: Any,
        discounts: Any,
    ) -> tuple[Any, Any]:
        """Q-values of the taken actions and what they are to become: (B,) both, or (B, components)."""
        return self._pairs(
            q_values,
            actions,
            rewards,
            target_q_next,
            online_q_next,
            lambda target, online: self._target(rewards, terminated, target, online, discounts),
        )

    def _pairs(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        target_q_next: Any,
        online_q_next: Any,
        target_of: Callable[[Any, Any], Any],
    ) -> tuple[Any, Any]:
        """Q-values of the taken actions, and targets: of each leaf from its next Q-values (target, online)."""
        if (online_q_next is not None) != self.double:
            raise BuildError(
                "double Q-learning needs online_q_next"
                if self.double
                else "online_q_next is of no use without double Q-learning",
                where=self.path,
                fix="pass the q-values of the next observations by the trained network"
                if self.double
                else "leave it out, or set double=True",
            )
        chosen, targets = [], []
        for path, taken in flatten_tree(actions).items():
            chosen.append(self._chosen(self._leaf(q_values, path), taken, rewards))
            online = None if online_q_next is None else self._leaf(online_q_next, path)
            targets.append(target_of(self._leaf(target_q_next, path), online))
        if len(chosen) == 1:
            return chosen[0], targets[0]
        return self._join(chosen, rewards), self._join(targets, rewards)

    def _leaf(self, nested: Any, path: str) -> Any:
        """The Q values of one action; a value that is not known yet stands for all of its leaves."""
        flat = flatten_tree(nested)
        if path in flat or "" in flat:
            return flat.get(path, flat.get(""))
        raise BuildError(
            "Q values and actions are nested differently",
            where=self.path,
            received=f"an action {path!r}, Q values of {sorted(flat)}",
            fix="pass Q values of a policy over the same action space",
        )

    @graph_fn
    def _chosen(self, q_values: Any, taken: Any, rewards: Any) -> Any:
        return _columns(ops.take_last(q_values, ops.astype(taken, "int32")), rewards)

    @graph_fn(differentiable=False)
    def _target(self, rewards: Any, terminated: Any, target_q_next: Any, online_q_next: Any, discounts: Any) -> Any:
        q_next = self._next_values(target_q_next, online_q_next, rewards)
        factor = self.discount**self.n_step if discounts is None else discounts
        if len(q_next.shape) > len(rewards.shape):
            rewards, terminated = ops.expand_dims(rewards, -1), ops.expand_dims(terminated, -1)
            factor = factor if discounts is None else ops.expand_dims(factor, -1)
        return rewards + factor * ops.where(terminated, 0.0, q_next)

    def _next_values(self, target_q_next: Any, online_q_next: Any, rewards: Any) -> Any:
        if self.double:
            return _columns(ops.take_last(target_q_next, ops.argmax(online_q_next, -1)), rewards)
        return _columns(ops.max(target_q_next, -1), rewards)

    @graph_fn
    def _join(self, leaves: Any, rewards: Any) -> Any:
        """Components of all leaves side by side: (B,) and (B, k) to (B, K)."""
        return ops.concat([ops.reshape(leaf, (*rewards.shape, -1)) for leaf in leaves], -1)

    @graph_fn
    def _mean_loss(self, chosen: Any, targets: Any, rewards: Any, weights: Any) -> Any:
        if weights is None and self.huber_delta is not None and len(chosen.shape) == len(rewards.shape):
            return ops.huber_loss(chosen, targets, self.huber_delta, reduction="mean")
        return ops.mean(self._loss_per_item(chosen, targets, rewards, weights))

    @graph_fn
    def _losses(self, chosen: Any, targets: Any, rewards: Any, weights: Any) -> Any:
        return self._loss_per_item(chosen, targets, rewards, weights)

    def _loss_per_item(self, chosen: Any, targets: Any, rewards: Any, weights: Any) -> Any:
        has_components = len(chosen.shape) > len(rewards.shape)
        if has_components and self.reduce_components == "td":
            chosen, targets = ops.mean(chosen, -1), ops.mean(targets, -1)
        if self.huber_delta is None:
            loss = 0.5 * ops.square(chosen - targets)
        else:
            loss = ops.huber_loss(chosen, targets, self.huber_delta)
        if has_components and self.reduce_components == "loss":
            loss = ops.mean(loss, -1)
        return loss if weights is None else loss * weights

    @graph_fn(differentiable=False)
    def _sizes(self, chosen: Any, targets: Any, rewards: Any) -> Any:
        errors = targets - chosen
        if len(errors.shape) == len(rewards.shape):
            return ops.abs(errors)
        return ops.abs(ops.mean(errors, -1)) if self.reduce_components == "td" else ops.mean(ops.abs(errors), -1)


def _columns(leaf: Any, rewards: Any) -> Any:
    """Components of one action leaf side by side: (B, *action_shape) to (B, k); (B,) stays."""
    return leaf if len(leaf.shape) == len(rewards.shape) else ops.reshape(leaf, (*rewards.shape, -1))

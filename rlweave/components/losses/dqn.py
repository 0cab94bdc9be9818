"""The loss of deep Q-learning."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.errors import BuildError, ConfigError, nearest
from rlweave.graph import Component, api, graph_fn, register

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
        if not 0.0 <= discount <= 1.0:
            raise ConfigError("discount is out of range", received=repr(discount), fix="it has to be in [0, 1]")
        if n_step < 1:
            raise ConfigError("n_step is out of range", received=repr(n_step), fix="it has to be at least 1")
        if huber_delta is not None and huber_delta <= 0:
            raise ConfigError("huber_delta is out of range", received=repr(huber_delta), fix="above 0, or None")
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
            q_values: Of the states, by the network that is trained, (B, *action_shape, A); of a nested action space
                nested like it.
            actions: Taken ones, int or bool, (B, *action_shape), nested alike.
            rewards: Float, (B,); of n steps their discounted sum.
            terminated: Bool, (B,): nothing comes after the next states. (Truncated ones are bootstrapped: False.)
            target_q_next: Of the next states, by the target network, (B, *action_shape, A).
            online_q_next: Of the next states, by the network that is trained; for double Q-learning only.
            weights: Importance weights (B,), which multiply the per-item loss; None: 1.
            discounts: Float, (B,): discount^(steps used) of each item, where windows differ (they end at episode
                ends); None: discount^n_step.

        Returns:
            The loss, a scalar; sizes of the temporal-difference errors, (B,), at least 0 and unweighted: of
            components the mean size ("loss") or the size of the mean ("td").

        Raises:
            BuildError: `online_q_next` is missing for double Q-learning, or given without.
        """
        per_item, td_errors = self.loss_per_item(
            q_values, actions, rewards, terminated, target_q_next, online_q_next, weights, discounts
        )
        return self._mean(per_item), td_errors

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
        if (online_q_next is not None) != self.double:
            raise BuildError(
                "double Q-learning needs online_q_next"
                if self.double
                else "online_q_next is of no use without double Q-learning",
                where=self.path,
                fix="pass the q-values of the next states by the trained network"
                if self.double
                else "leave it out, or set double=True",
            )
        return self._loss_per_item(
            q_values, actions, rewards, terminated, target_q_next, online_q_next, weights, discounts
        )

    @graph_fn(flatten=True, returns=2)
    def _loss_per_item(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        target_q_next: Any,
        online_q_next: Any,
        weights: Any,
        discounts: Any,
    ) -> Any:
        rewards = rewards[""]
        factor = self.discount**self.n_step if discounts is None else discounts[""]
        factor = ops.where(terminated[""], 0.0, factor)
        errors = []
        for path, leaf_actions in actions.items():
            q = ops.take_last(q_values[path], ops.astype(leaf_actions, "int32"))
            if self.double:
                q_next = ops.take_last(target_q_next[path], ops.argmax(online_q_next[path], -1))
            else:
                q_next = ops.max(target_q_next[path], -1)
            errors.append(self._error(q, rewards, factor, q_next))
        if len(errors) == 1 and len(errors[0].shape) == len(rewards.shape):
            td = errors[0]
            loss, size = huber(td, self.huber_delta), ops.abs(td)
        else:
            td = ops.concat([ops.reshape(error, (*rewards.shape, -1)) for error in errors], -1)
            if self.reduce_components == "td":
                td = ops.mean(td, -1, keepdims=True)
            loss, size = ops.mean(huber(td, self.huber_delta), -1), ops.mean(ops.abs(td), -1)
        if weights is not None:
            loss = loss * weights[""]
        return loss, ops.stop_gradient(size)

    def _error(self, q: Any, rewards: Any, factor: Any, q_next: Any) -> Any:
        for _ in range(len(q.shape) - len(rewards.shape)):
            rewards, factor = ops.expand_dims(rewards, -1), ops.expand_dims(factor, -1)
        return ops.stop_gradient(rewards + factor * q_next) - q

    @graph_fn
    def _mean(self, per_item: Any) -> Any:
        return ops.mean(per_item)


def huber(error: Any, delta: float | None) -> Any:
    """0.5 * error^2, from |error| = delta on linear (Huber 1964); all quadratic for None. A graph function body.

    Args:
        error: Float array.
        delta: Where the line begins.

    Returns:
        Array of the same shape.
    """
    if delta is None:
        return 0.5 * ops.square(error)
    size = ops.abs(error)
    quadratic = ops.minimum(size, delta)
    return 0.5 * ops.square(quadratic) + delta * (size - quadratic)

"""Losses of DDPG, TD3 and SAC: of the critics, which all share, and of SAC's policy."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn, register


@register("critic_loss")
class CriticLoss(Component):
    """Squared temporal-difference errors of one or several critics against one target.

    target = rewards + discounts * (1 - terminated) * (min of the target critics - alpha * next log-probability), the
    last term for SAC only (arXiv:1801.01290, 1802.09477, 1509.02971). Truncated steps are bootstrapped. Per item the
    loss is the sum over critics of 0.5 * (target - value)^2; then weighted and averaged.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "critic-loss") -> None:
        super().__init__(scope)

    @graph_fn(differentiable=False)
    def targets(
        self,
        rewards: Any,
        terminated: Any,
        discounts: Any,
        next_values: Any,
        next_log_probs: Any = None,
        alpha: Any = None,
    ) -> Any:
        """What values are to become; no gradient.

        Args:
            rewards: Float, (B,); of n steps their discounted sum.
            terminated: Bool, (B,): nothing comes after the next observations.
            discounts: Float, (B,): discount^(steps used).
            next_values: Of the next observations and next actions, by the target critics, (B, critics).
            next_log_probs: Of the next actions, (B,); None: no entropy.
            alpha: Weight of the entropy, a scalar; None: no entropy.

        Returns:
            (B,).
        """
        value = ops.min(next_values, axis=-1)
        if alpha is not None:
            value = value - alpha * next_log_probs
        return rewards + discounts * ops.where(terminated, 0.0, value)

    @graph_fn
    def loss(self, values: Any, targets: Any, weights: Any = None) -> Any:
        """The loss, a scalar, of values (B, critics) against targets (B,), weighted by (B,)."""
        errors = ops.expand_dims(ops.stop_gradient(targets), -1) - values
        loss = 0.5 * ops.sum(ops.square(errors), axis=-1)
        return ops.mean(loss if weights is None else loss * weights)

    @graph_fn(differentiable=False)
    def sizes(self, values: Any, targets: Any) -> Any:
        """Mean size of the critics' errors, (B,), for priorities."""
        return ops.mean(ops.abs(ops.expand_dims(targets, -1) - values), axis=-1)


@register("soft_policy_loss")
class SoftPolicyLoss(Component):
    """The policy's loss of soft actor-critic: mean(alpha * log-probability - the smallest value).

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "policy-loss") -> None:
        super().__init__(scope)

    @graph_fn
    def loss(self, log_probs: Any, values: Any, alpha: Any) -> Any:
        """The loss, a scalar.

        Args:
            log_probs: Of fresh actions, (B,).
            values: Of these actions, (B, critics).
            alpha: Weight of the entropy, a scalar; a constant to the gradient.
        """
        return ops.mean(ops.stop_gradient(alpha) * log_probs - ops.min(values, axis=-1))

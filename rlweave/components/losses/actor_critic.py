"""The loss of advantage actor-critic."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components.losses.ppo import mean
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import NOT_NEGATIVE


@register("actor_critic_loss")
class ActorCriticLoss(Component):
    """Policy gradient with advantages, value loss and entropy bonus (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

    policy_loss = -mean(log_probs * A), value_loss = 0.5 * mean((values - returns)^2),
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * mean(entropies).

    Means over the items, where the paper sums over the steps of a rollout: so a learning rate does not depend on the
    number of environments, and gradients of parts can be averaged.

    Args:
        value_coefficient: Weight of the value loss.
        entropy_coefficient: Weight of the entropy bonus.
        scope: Name within the owner.
    """

    def __init__(
        self, value_coefficient: float = 0.5, entropy_coefficient: float = 0.01, scope: str = "actor-critic-loss"
    ) -> None:
        super().__init__(scope)
        NOT_NEGATIVE.check("value_coefficient", value_coefficient, scope)
        NOT_NEGATIVE.check("entropy_coefficient", entropy_coefficient, scope)
        self.value_coefficient, self.entropy_coefficient = value_coefficient, entropy_coefficient

    @api
    def loss(self, log_probs: Any, advantages: Any, values: Any, returns: Any, entropies: Any, mask: Any = None) -> Any:
        """The loss of a batch, of any leading ranks, (B,) or (T, B); all arguments have the same.

        Args:
            log_probs: Of the taken actions.
            advantages: Estimates; constants.
            values: By the value function that is trained.
            returns: Value targets; constants.
            entropies: Of the policy.
            mask: Bool; False items (padding) count nowhere. None: all count.

        Returns:
            The loss, a scalar, and scalars by name: "policy_loss", "value_loss", "entropy".
        """
        return self._loss(log_probs, advantages, values, returns, entropies, mask)

    @graph_fn(returns=2)
    def _loss(self, log_probs: Any, advantages: Any, values: Any, returns: Any, entropies: Any, mask: Any) -> Any:
        advantages, returns = ops.stop_gradient(advantages), ops.stop_gradient(returns)
        if mask is not None:
            # an infinite log-probability in the padding would become NaN, even times 0
            log_probs = ops.where(mask, log_probs, 0.0)
        policy_loss = -mean(log_probs * advantages, mask)
        value_loss = 0.5 * mean(ops.square(values - returns), mask)
        entropy = mean(entropies, mask)
        loss = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return loss, {name: ops.stop_gradient(value) for name, value in metrics.items()}

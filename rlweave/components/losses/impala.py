"""The loss of IMPALA: an actor-critic whose targets come from V-trace."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import NOT_NEGATIVE


@register("impala_loss")
class IMPALALoss(Component):
    """Policy gradient, value loss and entropy bonus (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, 4.2).

    policy_loss = -mean(log_probs * advantages),
    value_loss = 0.5 * mean((values - value_targets)^2),
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * mean(entropies).

    Where the original sums over the steps of a batch, this is a mean: a learning rate means the same for every length
    of rollouts and number of environments. (The original's rates are for sums over 20 x 32 steps.)

    Args:
        value_coefficient: Weight of the value loss, at least 0.
        entropy_coefficient: Weight of the entropy bonus, at least 0.
        scope: Name within the owner.

    Raises:
        ConfigError: A weight is negative.
    """

    def __init__(
        self, value_coefficient: float = 0.5, entropy_coefficient: float = 0.01, scope: str = "impala-loss"
    ) -> None:
        super().__init__(scope)
        for name, value in (("value_coefficient", value_coefficient), ("entropy_coefficient", entropy_coefficient)):
            NOT_NEGATIVE.check(name, value, scope)
        self.value_coefficient, self.entropy_coefficient = float(value_coefficient), float(entropy_coefficient)

    @api
    def loss(self, log_probs: Any, advantages: Any, values: Any, value_targets: Any, entropies: Any) -> Any:
        """The loss of a batch, of any leading ranks, (B,) or (T, B); all arguments have the same.

        Args:
            log_probs: Of the taken actions, by the policy that is trained.
            advantages: Off-policy corrected; constants for the gradient.
            values: By the value function that is trained.
            value_targets: What the values are to become; constants for the gradient.
            entropies: Of the policy that is trained.

        Returns:
            The loss, a scalar, and scalars by name: "policy_loss", "value_loss", "entropy".
        """
        return self._loss(log_probs, advantages, values, value_targets, entropies)

    @graph_fn(returns=2)
    def _loss(self, log_probs: Any, advantages: Any, values: Any, value_targets: Any, entropies: Any) -> Any:
        policy_loss = -ops.mean(log_probs * ops.stop_gradient(advantages))
        value_loss = 0.5 * ops.mean(ops.square(values - ops.stop_gradient(value_targets)))
        entropy = ops.mean(entropies)
        loss = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return loss, {name: ops.stop_gradient(value) for name, value in metrics.items()}

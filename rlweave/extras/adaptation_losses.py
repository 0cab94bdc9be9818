"""Losses by which a policy is adapted to one task: squared errors of predictions, and the policy gradient."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn, register
from rlweave.settings.ranges import POSITIVE


@register("squared_error_loss")
class SquaredErrorLoss(Component):
    """The mean squared error of predictions."""

    @graph_fn
    def loss(self, predictions: Any, targets: Any) -> Any:
        """mean((predictions - targets)^2) over all axes.

        Args:
            predictions: Any axes, (B, *shape).
            targets: The same.

        Returns:
            A scalar.
        """
        return ops.mean(ops.square(predictions - targets))


@register("surrogate_loss")
class SurrogateLoss(Component):
    """The policy gradient as the gradient of a surrogate, -mean(r A) with the ratio r = exp(log_probs - old_log_probs).

    At the policy that acted r is 1, and the gradient is -mean(A grad log_probs): REINFORCE. The second derivative,
    which meta-gradients go through, is -mean(A (hess log_probs + grad log_probs grad log_probs^T)), that of the
    expected return for fixed advantages. (The program of Finn et al. 2017 differentiates -mean(A log_probs) here, whose
    second derivative lacks the last term; Rothfuss et al. 2019, arXiv:1810.06784, section 4.)

    Args:
        clip: With a number above 0 the surrogate of PPO, -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)), on which
            several steps can be taken; None: as above.
        scope: Name within the owner.

    Raises:
        ConfigError: The clip is not above 0.
    """

    def __init__(self, clip: float | None = None, scope: str = "surrogate-loss") -> None:
        super().__init__(scope)
        POSITIVE.check("clip", clip, scope, optional=True)
        self.clip = clip

    @graph_fn
    def loss(self, log_probs: Any, old_log_probs: Any, advantages: Any) -> Any:
        """The surrogate of a batch.

        Args:
            log_probs: Of the taken actions, by the policy that is trained, (B,).
            old_log_probs: Of the same, by the policy that acted, (B,); constant.
            advantages: (B,); constant.

        Returns:
            A scalar.
        """
        advantages = ops.stop_gradient(advantages)
        ratio = ops.exp(log_probs - ops.stop_gradient(old_log_probs))
        gained = ratio * advantages
        if self.clip is not None:
            gained = ops.minimum(gained, ops.clip(ratio, 1.0 - self.clip, 1.0 + self.clip) * advantages)
        return -ops.mean(gained)

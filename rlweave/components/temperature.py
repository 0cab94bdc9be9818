"""The temperature of maximum-entropy reinforcement learning: the weight of the entropy, learned."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import FINITE, POSITIVE


@register("temperature")
class Temperature(Component):
    """A weight of the entropy that keeps the policy's entropy at a target (Haarnoja et al. 2018, arXiv:1812.05905).

    Its loss is mean(-log alpha * (log-probability + target entropy)), whose gradient has the sign of the paper's
    equation 18 and does not vanish where alpha is small; log-probabilities are constants to it.

    Args:
        target_entropy: In nats.
        initial: Alpha at the start, above 0.
        trainable: False keeps it.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    def __init__(
        self, target_entropy: float, initial: float = 1.0, trainable: bool = True, scope: str = "temperature"
    ) -> None:
        super().__init__(scope, trainable=trainable)
        FINITE.check("target_entropy", target_entropy, scope)
        POSITIVE.check("initial", initial, scope)
        self.target_entropy, self.initial = float(target_entropy), float(initial)

    def create_variables(self) -> None:
        """The logarithm of alpha, a scalar."""
        self.log_alpha = self.variable("log_alpha", (), math.log(self.initial))

    @graph_fn(differentiable=False)
    def alpha(self) -> Any:
        """Alpha, a scalar without a gradient."""
        return ops.exp(self.log_alpha.value)

    @api
    def loss(self, log_probs: Any) -> Any:
        """The loss that moves alpha.

        Args:
            log_probs: Log-probabilities of fresh actions, (B,).

        Returns:
            A scalar.
        """
        return self._loss(log_probs)

    @graph_fn
    def _loss(self, log_probs: Any) -> Any:
        return -ops.mean(self.log_alpha.value * (ops.stop_gradient(log_probs) + self.target_entropy))

"""The tanh-squashed normal distribution as a component of its own."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components.action_distribution import squash, squashed_entropy, squashed_log_prob, unsquash
from rlweave.components.distributions import check_box, normal_kl, normal_sample
from rlweave.graph import Component, graph_fn, register


@register("squashed_normal")
class SquashedNormal(Component):
    """Independent normal distributions passed through tanh into a box (Haarnoja et al. 2018, appendix C).

    The log-probability is that of the number in [-1, 1], before scaling to the box, and is finite always: from the
    number before tanh where the distribution drew it itself, and from actions clipped to just inside the bounds where
    they come from elsewhere. All results are elementwise, of the shape of the mean; `log_std` is clamped.

    `Joint(squash=True)` does the same for each leaf of a nested action, by dimension, without the box.

    Args:
        low: The box's lower bound.
        high: Its upper bound.
        scope: Name within the owner.

    Raises:
        SpecError: Bounds that are not finite, or cross.
    """

    def __init__(self, low: float = -1.0, high: float = 1.0, scope: str = "squashed-normal") -> None:
        super().__init__(scope)
        check_box(low, high, scope)
        self.low, self.high = float(low), float(high)
        # halved first, as the width of a box may be more than float32 holds
        self.center, self.half_width = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low

    @graph_fn
    def sample(self, mean: Any, log_std: Any) -> Any:
        """Draws actions (...); gradients reach mean and log_std."""
        return self._in_box(normal_sample(mean, log_std))

    @graph_fn
    def sample_and_log_prob(self, mean: Any, log_std: Any) -> Any:
        """Draws actions and gives their log-probability from the number before tanh: (...) both."""
        u = normal_sample(mean, log_std)
        return self._in_box(u), squashed_log_prob(mean, log_std, u, True)

    @graph_fn
    def mode(self, mean: Any, log_std: Any) -> Any:
        """What the likeliest number before tanh becomes."""
        return self._in_box(mean)

    @graph_fn
    def log_prob(self, mean: Any, log_std: Any, values: Any) -> Any:
        """Log-probability of actions (...); those at or beyond a bound are clipped to just inside it."""
        u = unsquash((values - self.center) / self.half_width, True)
        return squashed_log_prob(mean, log_std, u, True)

    @graph_fn
    def entropy(self, mean: Any, log_std: Any) -> Any:
        """Entropy in nats, in units of [-1, 1], by quadrature."""
        return squashed_entropy(mean, log_std, True)

    @graph_fn
    def kl(self, mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
        """KL(first || other); tanh does not change it."""
        return normal_kl(mean, log_std, other_mean, other_log_std)

    def _in_box(self, u: Any) -> Any:
        """What a number before tanh becomes, clipped where rounding steps over a bound."""
        return ops.clip(self.center + self.half_width * squash(u, True), self.low, self.high)

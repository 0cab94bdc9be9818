"""The tanh-squashed normal distribution as a component of its own."""

from __future__ import annotations

from typing import Any

from rlweave.components.action_distribution import squash, squashed_entropy, squashed_log_prob, unsquash
from rlweave.components.action_leaves import ActionLeaf
from rlweave.components.distributions import check_box, normal_kl, normal_sample
from rlweave.graph import Component, graph_fn, register


@register("squashed_normal")
class SquashedNormal(Component):
    """Independent normal distributions passed through tanh into a box (Haarnoja et al. 2018, appendix C).

    The log-probability is that of the number in [-1, 1], before scaling to the box, and is finite always: from the
    number before tanh where the distribution drew it itself, and from actions clipped to just inside the bounds where
    they come from elsewhere. All results are elementwise, of the shape of the mean; `log_std` is clamped.

    `Joint(squash=True)` does the same for each leaf of a nested action, with bounds by dimension.

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
        self.leaf = ActionLeaf("", "normal", (), (self.low,), (self.high,))

    @graph_fn
    def sample(self, mean: Any, log_std: Any) -> Any:
        """Draws actions (...); gradients reach mean and log_std."""
        return squash(normal_sample(mean, log_std), self.leaf)

    @graph_fn
    def sample_and_log_prob(self, mean: Any, log_std: Any) -> Any:
        """Draws actions and gives their log-probability from the number before tanh: (...) both."""
        u = normal_sample(mean, log_std)
        return squash(u, self.leaf), squashed_log_prob(mean, log_std, u, self.leaf)

    @graph_fn
    def mode(self, mean: Any, log_std: Any) -> Any:
        """What the likeliest number before tanh becomes."""
        return squash(mean, self.leaf)

    @graph_fn
    def log_prob(self, mean: Any, log_std: Any, values: Any) -> Any:
        """Log-probability of actions (...); those at or beyond a bound are clipped to just inside it."""
        return squashed_log_prob(mean, log_std, unsquash(values, self.leaf), self.leaf)

    @graph_fn
    def entropy(self, mean: Any, log_std: Any) -> Any:
        """Entropy in nats, in units of [-1, 1], by quadrature."""
        return squashed_entropy(mean, log_std, self.leaf)

    @graph_fn
    def kl(self, mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
        """KL(first || other); tanh does not change it."""
        return normal_kl(mean, log_std, other_mean, other_log_std)

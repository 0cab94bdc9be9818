"""Running normalization of rewards."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components.normalization import RunningNormalization
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import POSITIVE, PROBABILITY
from rlweave.spaces import Space


@register("reward_normalization")
class RewardNormalization(Component):
    """Divides rewards by the running deviation of the discounted return.

    Source: Engstrom et al. 2020, "Implementation Matters in Deep Policy Gradients", section 3.

    The return so far of a column, R_t = g R_{t-1} + r_t, starts anew after an episode's end and is carried from one
    rollout to the next. Rewards are scaled, never shifted: a shift would change which policy is the best one.

    Args:
        discount: g, in [0, 1].
        clip: Scaled rewards are clipped to [-clip, clip]; None does not clip.
        epsilon: Added to the variance of the return.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    def __init__(
        self,
        discount: float = 0.99,
        clip: float | None = 10.0,
        epsilon: float = 1e-8,
        scope: str = "reward-normalization",
    ) -> None:
        super().__init__(scope)
        PROBABILITY.check("discount", discount, scope)
        POSITIVE.check("clip", clip, scope, optional=True)
        self.discount = discount
        self.returns = RunningNormalization(clip, epsilon, scope="returns")

    def create_variables(self, rewards: Any) -> None:
        """What is carried to the first step of the next rollout, (B,)."""
        columns = rewards.concrete_shape({"T": 1})[1]
        self.carried = self.variable("carried", (columns,), 0.0, trainable=False)

    @api
    def call(self, rewards: Any) -> Any:
        """Rewards of any leading ranks, scaled by the present statistics and clipped."""
        return self.returns.scale(rewards)

    @api
    def update(self, rewards: Any, terminated: Any, truncated: Any) -> None:
        """Merges the returns of a rollout into the statistics.

        Args:
            rewards: (T, B), B as in every other rollout.
            terminated: (T, B), bool.
            truncated: (T, B), bool.
        """
        self.returns.merge(self.returns_so_far(rewards, terminated, truncated))

    @graph_fn(differentiable=False, spaces="_returns_space", returns=1)
    def returns_so_far(self, rewards: Any, terminated: Any, truncated: Any) -> Any:
        """R_t of each step, (T, B); keeps what the next rollout begins with."""
        decays = ops.where(ops.logical_or(terminated, truncated), 0.0, ops.full_like(rewards, self.discount))
        first = rewards[:1] + ops.expand_dims(self.carried.value, 0)
        # the sum runs forward: as the backward one of the flipped arrays, row t taking what step t - 1 hands on
        flipped = ops.flip(ops.concat([first, rewards[1:]], axis=0), axis=0)
        handed_on = ops.flip(ops.concat([decays[-1:], decays[:-1]], axis=0), axis=0)
        returns = ops.flip(ops.discounted_sums(flipped, handed_on), axis=0)
        self.carried.assign(returns[-1] * decays[-1])
        return returns

    def _returns_space(self, rewards: Space, terminated: Space, truncated: Space) -> Space:
        return rewards

"""The loss of proximal policy optimization."""

from __future__ import annotations

import difflib
from typing import Any

from rlweave import ops
from rlweave.components.optimizers import ScheduleLike
from rlweave.components.schedules import Constant, make_schedule
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE


@register("ppo_loss")
class PPOLoss(Component):
    """Clipped surrogate, value loss and entropy bonus (Schulman et al. 2017).

    With the ratio r = exp(log_probs - old_log_probs):
    policy_loss = -mean(min(r * A, clip(r, 1 - clip, 1 + clip) * A)),
    value_loss = 0.5 * mean((values - returns)^2), or with `value_clip` the larger of it and the same for
    old_values + clip(values - old_values, -value_clip, value_clip), per item,
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * mean(entropies).

    The value loss is halved, as in the original code; Stable-Baselines3 does not halve it: its `vf_coef=0.5` is
    `value_coefficient=1.0` here.

    Args:
        clip: A number above 0, or a schedule of `count` (see `loss`).
        value_clip: In units of the value function; None does not clip.
        value_coefficient: Weight of the value loss.
        entropy_coefficient: Weight of the entropy bonus.
        normalize_advantages: Advantages of the batch are brought to mean 0 and (population) deviation 1 first. Where
            they do not differ by more than float32 can tell (one item, all equal) they become 0, never NaN.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    #: Where moments of advantages become those of all ranks of a training, see `Ranks`; None: there is one.
    ranks: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        near = difflib.get_close_matches("surrogate", vars(cls), n=1, cutoff=0.8)
        if near and not hasattr(PPOLoss, near[0]):  # nothing calls it: the loss would be PPO's own, in silence
            raise BuildError(
                "a method is named nearly like `surrogate`, and does not override it",
                where=cls.__qualname__,
                received=near[0],
                fix="name it surrogate, or less alike",
            )

    def __init__(
        self,
        clip: ScheduleLike = 0.2,
        value_clip: float | None = None,
        value_coefficient: float = 0.5,
        entropy_coefficient: float = 0.0,
        normalize_advantages: bool = True,
        scope: str = "ppo-loss",
    ) -> None:
        super().__init__(scope)
        self.clip = make_schedule(clip)
        (POSITIVE if isinstance(self.clip, Constant) else NOT_NEGATIVE).check_schedule("clip", self.clip, scope)
        POSITIVE.check("value_clip", value_clip, scope, optional=True)
        NOT_NEGATIVE.check("value_coefficient", value_coefficient, scope)
        NOT_NEGATIVE.check("entropy_coefficient", entropy_coefficient, scope)
        self.value_clip, self.value_coefficient = value_clip, value_coefficient
        self.entropy_coefficient, self.normalize_advantages = entropy_coefficient, normalize_advantages

    @api
    def loss(
        self,
        log_probs: Any,
        old_log_probs: Any,
        advantages: Any,
        values: Any,
        returns: Any,
        entropies: Any,
        old_values: Any = None,
        mask: Any = None,
        count: Any = None,
        moments: Any = (),
    ) -> Any:
        """The loss of a minibatch, of any leading ranks, (B,) or (T, B); all arguments have the same.

        Args:
            log_probs: Of the taken actions, by the policy that is trained.
            old_log_probs: Of the same, by the policy that acted.
            advantages: Estimates, not normalized.
            values: By the value function that is trained.
            returns: Value targets.
            entropies: Of the policy that is trained.
            old_values: By the value function at the time of acting; for `value_clip` only.
            mask: Bool; False items (padding) count nowhere. None: all count.
            count: Scalar: the absolute counter that a scheduled `clip` is a function of; for a schedule only.
            moments: Mean and variance of the advantages of all ranks, scalars, see `moments_of_ranks`; (): those given.

        Returns:
            The loss, a scalar, and scalars by name: "policy_loss", "value_loss", "entropy", "approx_kl"
            (mean of r - 1 - log r, Schulman 2020), "clip_fraction" (share of ratios outside of the clip).

        Raises:
            BuildError: `old_values` or `count` is missing, or given and of no use.
        """
        self._check_given("old_values", old_values is not None, "value_clip", self.value_clip is not None)
        self._check_given("count", count is not None, "a schedule as clip", not isinstance(self.clip, Constant))
        if self.normalize_advantages:
            # in a graph function of its own, as it sees the whole batch: replicas of the loss see parts of it
            advantages = self._normalize_by(advantages, *moments) if moments else self._normalize(advantages, mask)
        return self._loss(log_probs, old_log_probs, advantages, values, returns, entropies, old_values, mask, count)

    def _check_given(self, name: str, given: bool, option: str, used: bool) -> None:
        if given != used:
            raise BuildError(
                f"{name} is missing" if used else f"{name} is of no use here",
                where=f"{self.path}.loss",
                fix=f"it is needed with {option}, and only then",
            )

    @graph_fn(differentiable=False, mixes_batch=True)
    def _normalize(self, advantages: Any, mask: Any) -> Any:
        return normalized(advantages, mask)

    @api
    def moments_of_ranks(self, advantages: Any) -> Any:
        """Means and variances (M,) of the advantages of all ranks in M minibatches, of those of this one, (M, ...)."""
        if self.ranks is None or not self.normalize_advantages:
            return ()
        _, center, variance = self.ranks.moments(*self._moments(advantages))
        return center, variance

    @graph_fn(differentiable=False, mixes_batch=True, returns=3)
    def _moments(self, advantages: Any) -> Any:
        each = ops.reshape(advantages, (advantages.shape[0], -1))
        center = ops.mean(each, axis=1)
        variance = ops.mean(ops.square(each - ops.expand_dims(center, 1)), axis=1)
        return ops.asarray(float(each.shape[1]), "float32"), center, variance

    @graph_fn(differentiable=False)
    def _normalize_by(self, advantages: Any, center: Any, variance: Any) -> Any:
        return scaled(advantages, center, ops.sqrt(variance))

    @graph_fn(returns=2)
    def _loss(
        self,
        log_probs: Any,
        old_log_probs: Any,
        advantages: Any,
        values: Any,
        returns: Any,
        entropies: Any,
        old_values: Any,
        mask: Any,
        count: Any,
    ) -> Any:
        clip: Any = self.clip.value if isinstance(self.clip, Constant) else self.clip.in_graph(count, ops)
        advantages, returns = ops.stop_gradient(advantages), ops.stop_gradient(returns)
        log_ratio = log_probs - ops.stop_gradient(old_log_probs)
        if mask is not None:
            # an infinite ratio in the padding would become NaN in the gradient, even times 0
            log_ratio = ops.where(mask, log_ratio, 0.0)
        ratio = ops.exp(log_ratio)
        policy_loss = -mean(self.surrogate(ratio, log_ratio, advantages, clip), mask)

        value_errors = ops.square(values - returns)
        if self.value_clip is not None:
            old_values = ops.stop_gradient(old_values)
            near_values = old_values + ops.clip(values - old_values, -self.value_clip, self.value_clip)
            value_errors = ops.maximum(value_errors, ops.square(near_values - returns))
        value_loss = 0.5 * mean(value_errors, mask)

        entropy = mean(entropies, mask)
        loss = policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * entropy
        outside = ops.astype(ops.abs(ratio - 1.0) > clip, "float32")
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": mean(ratio - 1.0 - log_ratio, mask),
            "clip_fraction": mean(outside, mask),
        }
        return loss, {name: ops.stop_gradient(value) for name, value in metrics.items()}

    def surrogate(self, ratio: Any, log_ratio: Any, advantages: Any, clip: Any) -> Any:
        """Per-sample objective to maximize. Override to change the loss; use `ops` only.

        Args:
            ratio: r, of the policy that is trained to the one that acted.
            log_ratio: log r.
            advantages: Of the taken actions; constants.
            clip: Clip range of the ratio.
        """
        return ops.minimum(ratio * advantages, ops.clip(ratio, 1.0 - clip, 1.0 + clip) * advantages)


def mean(x: Any, mask: Any = None) -> Any:
    """The mean over all axes of the items that count; 0 where none does. A graph function body.

    Args:
        x: Float array.
        mask: Bool array of the same shape, or None.
    """
    if mask is None:
        return ops.mean(x)
    counted = ops.astype(mask, "float32")
    return ops.sum(ops.where(mask, x, 0.0)) / ops.maximum(ops.sum(counted), 1.0)


def normalized(x: Any, mask: Any = None) -> Any:
    """(x - mean) / deviation over all axes, of the items that count; 0 where they are equal. A graph function body.

    Args:
        x: Float array.
        mask: Bool array of the same shape, or None.
    """
    center = mean(x, mask)
    return scaled(x, center, ops.sqrt(mean(ops.square(x - center), mask)))


def scaled(x: Any, center: Any, deviation: Any) -> Any:
    """(x - center) / deviation; 0 where the deviation is the rounding error of the center. A graph function body.

    Args:
        x: Float array.
        center: Mean of what it is of, a scalar.
        deviation: Of the same, a scalar.
    """
    # below this, what is left of equal numbers is the rounding error of their mean
    differs = deviation > 1e-6 * ops.abs(center)
    return ops.where(differs, (x - center) / (deviation + 1e-8), 0.0)

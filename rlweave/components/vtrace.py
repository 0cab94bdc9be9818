"""V-trace: value targets and advantages from steps that an older policy took.

Espeholt et al., "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner architectures" (2018,
https://arxiv.org/abs/1802.01561), section 4.1. Conventions are those of `returns`: row t holds the step from s_t,
`next_values[t]` is the value of the state that the step really led to, `terminated` steps have no next value, and no
sum crosses the end of an episode or of the arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlweave import ops
from rlweave.components.returns import td_errors
from rlweave.errors import BuildError
from rlweave.graph import Component, graph_fn, register
from rlweave.settings.ranges import POSITIVE, PROBABILITY

Array = Any

LARGEST_LOG_RATIO = 40.0


class VTraceReturns(NamedTuple):
    """What V-trace makes of trajectories.

    Attributes:
        value_targets: vs, (T, B).
        advantages: rho_t (r_t + g vs_{t+1} - V(s_t)) with the clipped rho of policy gradients, (T, B).
        ratios: pi(a_t | s_t) / mu(a_t | s_t), not clipped, (T, B).
    """

    value_targets: Array
    advantages: Array
    ratios: Array


def vtrace(
    target_log_probs: Array,
    behaviour_log_probs: Array,
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    discount: float,
    rho_clip: float | None = 1.0,
    c_clip: float = 1.0,
    policy_rho_clip: float | None = 1.0,
    lambda_: float = 1.0,
) -> VTraceReturns:
    """V-trace targets and policy-gradient advantages.

    vs_t = V(s_t) + delta_t + g c_t (vs_{t+1} - V(s_{t+1})), delta_t = rho_t (r_t + g V(s_{t+1}) - V(s_t)),
    rho_t = min(rho_clip, ratio_t), c_t = lambda min(c_clip, ratio_t). With equal policies and both clips at 1 these are
    the n-step returns (remark 1 of the paper).

    Args:
        target_log_probs: log pi(a_t | s_t) of the learner's policy, (T, B).
        behaviour_log_probs: log mu(a_t | s_t) of the policy that acted, (T, B).
        rewards: (T, B).
        values: V(s_t), (T, B).
        next_values: V of the state that the step led to, (T, B); of the final observation where truncated.
        terminated: (T, B), bool.
        truncated: (T, B), bool.
        discount: g.
        rho_clip: Largest weight of a TD error; None: not clipped. It decides what the values converge to.
        c_clip: Largest trace. It decides how fast.
        policy_rho_clip: Largest weight in the advantages; None: not clipped.
        lambda_: Decay of traces.
    """
    # without a clip an infinite ratio would meet a zero, and become NaN
    ratios = ops.exp(ops.minimum(target_log_probs - behaviour_log_probs, LARGEST_LOG_RATIO))
    ended = ops.logical_or(terminated, truncated)
    rhos = ratios if rho_clip is None else ops.minimum(ratios, rho_clip)
    deltas = rhos * td_errors(rewards, values, next_values, terminated, discount)
    decays = ops.where(ended, 0.0, discount * lambda_ * ops.minimum(ratios, c_clip))
    corrections = ops.discounted_sums(deltas, decays)
    targets = values + corrections
    # vs_{t+1} is the next row's, but for the ends of episodes and of the arrays: there only a value is known
    following = ops.concat([targets[1:], next_values[-1:]], axis=0)
    following = ops.where(ended, next_values, following)
    policy_rhos = ratios if policy_rho_clip is None else ops.minimum(ratios, policy_rho_clip)
    advantages = policy_rhos * td_errors(rewards, values, following, terminated, discount)
    return VTraceReturns(targets, advantages, ratios)


@register("vtrace")
class VTrace(Component):
    """V-trace of a batch of trajectories; see `vtrace`. Results are constants for gradients.

    Args:
        discount: g, in [0, 1].
        rho_clip: Largest weight of a TD error; None: not clipped.
        c_clip: Largest trace, at most `rho_clip`.
        policy_rho_clip: Largest weight in the advantages; None: not clipped.
        lambda_: Decay of traces, in [0, 1].
        scope: Name within the owner.

    Raises:
        BuildError: A number out of its range.
    """

    def __init__(
        self,
        discount: float = 0.99,
        rho_clip: float | None = 1.0,
        c_clip: float = 1.0,
        policy_rho_clip: float | None = 1.0,
        lambda_: float = 1.0,
        scope: str = "vtrace",
    ) -> None:
        super().__init__(scope)
        for name, value in (("discount", discount), ("lambda_", lambda_)):
            PROBABILITY.check(name, value, scope)
        for name, clip in (("rho_clip", rho_clip), ("c_clip", c_clip), ("policy_rho_clip", policy_rho_clip)):
            POSITIVE.check(name, clip, scope, optional=True)
        if rho_clip is not None and c_clip > rho_clip:
            raise BuildError(
                "V-trace contracts only with c_clip <= rho_clip",
                where=scope,
                received=f"c_clip={c_clip!r}, rho_clip={rho_clip!r}",
                fix="lower c_clip, or raise rho_clip",
            )
        self.discount, self.lambda_ = float(discount), float(lambda_)
        self.rho_clip, self.c_clip, self.policy_rho_clip = rho_clip, c_clip, policy_rho_clip

    @graph_fn(differentiable=False, looks_ahead=True, returns=3)
    def estimate(
        self,
        target_log_probs: Array,
        behaviour_log_probs: Array,
        rewards: Array,
        values: Array,
        next_values: Array,
        terminated: Array,
        truncated: Array,
    ) -> tuple[Array, Array, Array]:
        """Value targets, advantages and importance ratios, (T, B) each, of arrays as in `vtrace`."""
        return vtrace(
            target_log_probs,
            behaviour_log_probs,
            rewards,
            values,
            next_values,
            terminated,
            truncated,
            self.discount,
            self.rho_clip,
            self.c_clip,
            self.policy_rho_clip,
            self.lambda_,
        )

"""Returns and advantages over trajectories: pure functions of (T, B) arrays, and components around them.

Conventions, the same in all of them. Row t holds the step from state s_t: `rewards[t]` and the flags belong to its
action, `values[t]` is V(s_t), and `next_values[t]` is the value of the state that the action really led to. Where an
episode was truncated that is the value of its *final* observation, never of the first one of the next episode; so it
is not `values[1:]` (`next_state_values` puts it together). A terminated step has no next value, whatever
stands there; `terminated` wins where both flags are set. Rewards stay the environment's. No sum crosses a terminated
or truncated step, or the end of the arrays: there it bootstraps.

The functions are written in ops: graph functions call them on any backend, the host calls them on NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn, register
from rlweave.settings.ranges import PROBABILITY

Array = Any


def next_state_values(values: Array, last_values: Array, truncated: Array, final_values: Array) -> Array:
    """V of the state that each step led to.

    Args:
        values: V(s_t), (T, B).
        last_values: V of the observations after the last step, (B,).
        truncated: True where an episode was cut, (T, B).
        final_values: V of the final observations, (T, B); only looked at where truncated.

    Returns:
        (T, B): `values` one step later, and `final_values` where truncated.
    """
    following = ops.concat([values[1:], ops.expand_dims(last_values, 0)], axis=0)
    return ops.where(truncated, final_values, following)


def td_errors(rewards: Array, values: Array, next_values: Array, terminated: Array, discount: float) -> Array:
    """One-step errors `r_t + g V(s_{t+1}) - V(s_t)`, without the V(s_{t+1}) of terminated steps.

    Args:
        rewards: (T, B).
        values: V(s_t), (T, B).
        next_values: V of the state that the step led to, (T, B).
        terminated: (T, B), bool.
        discount: g.

    Returns:
        (T, B).
    """
    return rewards + discount * _without_terminal(next_values, terminated) - values


def generalized_advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    discount: float,
    lambda_: float,
) -> tuple[Array, Array]:
    """Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16).

    `A_t = delta_t + g lambda A_{t+1}`, delta being the TD errors; the sum stops at terminated and truncated steps.

    Args:
        rewards: (T, B).
        values: V(s_t), (T, B).
        next_values: V of the state that the step led to, (T, B); of the final observation where truncated.
        terminated: (T, B), bool.
        truncated: (T, B), bool.
        discount: g.
        lambda_: 0 gives the TD errors, 1 the discounted returns minus the values.

    Returns:
        (advantages, value targets), (T, B) each; the targets are `advantages + values`.
    """
    deltas = td_errors(rewards, values, next_values, terminated, discount)
    decays = ops.where(ops.logical_or(terminated, truncated), 0.0, ops.full_like(deltas, discount * lambda_))
    advantages = ops.discounted_sums(deltas, decays)
    return advantages, advantages + values


def discounted_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, discount: float
) -> Array:
    """`G_t = r_t + g G_{t+1}`; at truncated steps and after the last row, V of the next state takes the place of G.

    Args:
        rewards: (T, B).
        next_values: V of the state that the step led to, (T, B); zeros for plain sums of rewards.
        terminated: (T, B), bool.
        truncated: (T, B), bool.
        discount: g.

    Returns:
        (T, B).
    """
    cut = _cuts(terminated, truncated)
    bootstrap = discount * _without_terminal(next_values, terminated)
    own = rewards + ops.where(cut, bootstrap, 0.0)
    return ops.discounted_sums(own, ops.where(cut, 0.0, ops.full_like(own, discount)))


def n_step_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, discount: float, n: int
) -> Array:
    """`G_t = r_t + ... + g^(m-1) r_{t+m-1} + g^m V(s_{t+m})`, m = n, or less where the episode or the rows end.

    Args:
        rewards: (T, B).
        next_values: V of the state that the step led to, (T, B); zeros for plain sums of rewards.
        terminated: (T, B), bool.
        truncated: (T, B), bool.
        discount: g.
        n: Length of a window, 1 or more.

    Returns:
        (T, B).
    """
    cut = _cuts(terminated, truncated)
    bootstrap = _without_terminal(next_values, terminated)
    returns = rewards + discount * bootstrap
    for _ in range(min(n, rewards.shape[0]) - 1):
        following = ops.concat([returns[1:], returns[-1:]], axis=0)
        returns = rewards + discount * ops.where(cut, bootstrap, following)
    return returns


def _without_terminal(next_values: Array, terminated: Array) -> Array:
    return ops.where(terminated, 0.0, next_values)


def _cuts(terminated: Array, truncated: Array) -> Array:
    """Where a sum ends: at the end of an episode, and at the last row."""
    ends = ops.logical_or(terminated, truncated)
    return ops.concat([ends[:-1], ops.ones_like(ends[-1:])], axis=0)


@register("gae")
class GeneralizedAdvantageEstimation(Component):
    """Advantages and value targets of a batch of trajectories; see `generalized_advantages`.

    Results are constants for gradients.

    Args:
        discount: g, in [0, 1].
        lambda_: In [0, 1].
        scope: Name within the owner.
    """

    def __init__(self, discount: float = 0.99, lambda_: float = 0.95, scope: str = "gae") -> None:
        super().__init__(scope)
        for name, value in (("discount", discount), ("lambda_", lambda_)):
            PROBABILITY.check(name, value, scope)
        self.discount, self.lambda_ = float(discount), float(lambda_)

    @graph_fn(differentiable=False, looks_ahead=True, returns=2)
    def estimate(
        self, rewards: Array, values: Array, next_values: Array, terminated: Array, truncated: Array
    ) -> tuple[Array, Array]:
        """Estimates advantages and value targets.

        Args:
            rewards: (T, B), float.
            values: V(s_t), (T, B).
            next_values: V of the state that the step really led to, (T, B); of the final observation where truncated.
            terminated: (T, B), bool.
            truncated: (T, B), bool.

        Returns:
            (advantages, value targets), (T, B) each.
        """
        return generalized_advantages(rewards, values, next_values, terminated, truncated, self.discount, self.lambda_)

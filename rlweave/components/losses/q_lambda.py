"""Q(lambda): returns of rollouts that mix what followed with the largest Q-values, and the loss on them."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn, register
from rlweave.settings.ranges import PROBABILITY

Array = Any


def lambda_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, discount: float, lambda_: float
) -> Array:
    """`G_t = r_t + g (lambda G_{t+1} + (1 - lambda) V(s_{t+1}))`, V(s_{t+1}) alone where the trace is cut.

    Terminated steps have no next value. Truncated ones, and the last row, cut the trace. Row t holds the step from
    s_t, as in `rlweave.components.returns`.

    Args:
        rewards: (T, ...).
        next_values: V of the state that the step led to, (T, ...); of the final observation where truncated.
        terminated: (T, ...), bool.
        truncated: (T, ...), bool.
        discount: g.
        lambda_: 0 gives one-step targets, 1 the discounted returns up to the cut.

    Returns:
        (T, ...).
    """
    ends = ops.logical_or(terminated, truncated)
    cut = ops.concat([ends[:-1], ops.ones_like(ends[-1:])], axis=0)
    bootstrap = discount * ops.where(terminated, 0.0, next_values)
    own = rewards + ops.where(cut, bootstrap, (1.0 - lambda_) * bootstrap)
    return ops.discounted_sums(own, ops.where(cut, 0.0, ops.full_like(own, discount * lambda_)))


@register("q_lambda_loss")
class QLambdaLoss(Component):
    """Targets of Q(lambda) without a target network, and the squared error of the taken actions (arXiv:2407.04811).

    The trace goes on whatever action was taken, as in Peng's Q(lambda) (Peng & Williams 1996). Actions with several
    components, or several leaves, have a Q function for each, all with the same reward; see `DQNLoss`.

    Args:
        discount: g, in [0, 1].
        lambda_: In [0, 1]; see `lambda_returns`.
        scope: Name within the owner.
    """

    def __init__(self, discount: float = 0.99, lambda_: float = 0.65, scope: str = "q-lambda-loss") -> None:
        super().__init__(scope)
        for name, value in (("discount", discount), ("lambda_", lambda_)):
            PROBABILITY.check(name, value, scope)
        self.discount, self.lambda_ = float(discount), float(lambda_)

    @graph_fn(split=True, differentiable=False, looks_ahead=True)
    def targets(self, q_next: Array, rewards: Array, terminated: Array, truncated: Array) -> Array:
        """What the Q-values of the taken actions are to become; constants for gradients.

        Args:
            q_next: Q-values of what each step led to, (T, B, *action_shape, A), nested like the action space; of the
                final observation where an episode ended.
            rewards: (T, B), float.
            terminated: (T, B), bool.
            truncated: (T, B), bool.

        Returns:
            (T, B, *action_shape), nested alike.
        """
        values = ops.max(q_next, -1)
        steps = [ops.reshape(x, (*x.shape, *(1 for _ in values.shape[2:]))) for x in (rewards, terminated, truncated)]
        own = [ops.broadcast_to(x, values.shape) for x in steps]
        return lambda_returns(own[0], values, own[1], own[2], self.discount, self.lambda_)

    @graph_fn(flatten=True, returns=2)
    def loss(self, q_values: Any, actions: Any, targets: Any) -> tuple[Array, Array]:
        """Half the mean squared error, over rows and over components of the action.

        Args:
            q_values: Of the observations, (..., *action_shape, A), nested like the action space.
            actions: Taken ones, int or bool, (..., *action_shape), nested alike.
            targets: (..., *action_shape), nested alike.

        Returns:
            The loss, and the mean Q-value of the taken actions, a constant for gradients; scalars.
        """
        chosen = _joined([ops.take_last(q, ops.astype(actions[path], "int32")) for path, q in q_values.items()])
        errors = ops.stop_gradient(_joined([targets[path] for path in q_values])) - chosen
        return 0.5 * ops.mean(ops.square(errors)), ops.mean(ops.stop_gradient(chosen))


def _joined(leaves: list[Array]) -> Array:
    """All components of all leaves, so that each counts alike."""
    return leaves[0] if len(leaves) == 1 else ops.concat([ops.reshape(leaf, (-1,)) for leaf in leaves], 0)

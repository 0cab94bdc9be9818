"""Losses of actors and critics that are wrong: values that learn from the policy, clipping, signs, another network."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import bools, floats, ints, mutant

DISCOUNT = 0.99


class ActorCriticLoss(Component):
    """Policy gradient and the error of values, in one loss."""

    def __init__(self) -> None:
        super().__init__("actor-critic")

    @graph_fn
    def loss(self, logits: Any, values: Any, actions: Any, returns: Any) -> Any:
        returns = ops.stop_gradient(returns)
        log_probs = ops.take_last(ops.log_softmax(logits), actions)
        policy_loss = -ops.mean(log_probs * self._advantages(returns, values))
        return policy_loss + 0.5 * ops.mean(ops.square(returns - values))

    def _advantages(self, returns: Any, values: Any) -> Any:
        return returns - ops.stop_gradient(values)


class ValuesThatLearnFromThePolicy(ActorCriticLoss):
    """keras-io #194, async-rl #8: the gradient of the policy's loss ran through the advantage into the critic."""

    def _advantages(self, returns: Any, values: Any) -> Any:
        return returns - values


class Surrogate(Component):
    """PPO's clipped surrogate."""

    def __init__(self) -> None:
        super().__init__("surrogate")

    @graph_fn
    def loss(self, log_probs: Any, old_log_probs: Any, advantages: Any) -> Any:
        ratio = ops.exp(log_probs - ops.stop_gradient(old_log_probs))
        advantages = ops.stop_gradient(advantages)
        return -ops.mean(self._worse(ratio * advantages, ops.clip(ratio, 0.8, 1.2) * advantages))

    def _worse(self, plain: Any, clipped: Any) -> Any:
        return ops.minimum(plain, clipped)


class SurrogateOfTheMaximum(Surrogate):
    """Practical_RL #248: the notebook took the maximum of both objectives in place of the minimum."""

    def _worse(self, plain: Any, clipped: Any) -> Any:
        return ops.maximum(plain, clipped)


class PenalizedPolicyLoss(Component):
    """Policy gradient that stays close to a reference policy."""

    def __init__(self) -> None:
        super().__init__("penalized")

    @graph_fn
    def loss(self, log_probs: Any, advantages: Any, kl: Any) -> Any:
        return -ops.mean(log_probs * ops.stop_gradient(advantages)) + 0.1 * self._penalty(kl)

    def _penalty(self, kl: Any) -> Any:
        return ops.mean(kl)


class DivergenceIsRewarded(PenalizedPolicyLoss):
    """ToolRL #52: the sign of the KL loss was wrong, and the policy collapsed."""

    def _penalty(self, kl: Any) -> Any:
        return -ops.mean(kl)


class DoubleQLoss(Component):
    """Double Q-learning: the network that learns chooses the next action, the target network says what it is worth."""

    def __init__(self) -> None:
        super().__init__("double-q")

    @graph_fn
    def loss(
        self, q_values: Any, actions: Any, rewards: Any, terminated: Any, online_q_next: Any, target_q_next: Any
    ) -> Any:
        following = self._next_value(online_q_next, target_q_next)
        target = ops.stop_gradient(rewards + DISCOUNT * ops.where(terminated, 0.0, following))
        return ops.mean(ops.square(ops.take_last(q_values, actions) - target))

    def _next_value(self, online_q_next: Any, target_q_next: Any) -> Any:
        return ops.take_last(target_q_next, ops.argmax(online_q_next, -1))


class DoubleQOfTheWrongNetwork(DoubleQLoss):
    """RL-Adventure #5: the action was not chosen by the network that learns; here both networks are swapped."""

    def _next_value(self, online_q_next: Any, target_q_next: Any) -> Any:
        return ops.take_last(online_q_next, ops.argmax(target_q_next, -1))


class PrioritizedLoss(Component):
    """Weighted squared TD errors, and the priorities that they give."""

    def __init__(self) -> None:
        super().__init__("prioritized-loss")

    @graph_fn(returns=2)
    def loss(self, q_values: Any, actions: Any, returns: Any, weights: Any) -> Any:
        errors = ops.take_last(q_values, actions) - ops.stop_gradient(returns)
        return ops.mean(weights * ops.square(errors)), {"priorities": self._priorities(ops.stop_gradient(errors))}

    def _priorities(self, errors: Any) -> Any:
        return ops.abs(errors) + 1e-6


class PrioritiesWithASign(PrioritizedLoss):
    """openai_lab #108, medipixel/rl_algorithms #191: a priority below zero, of which no power is a number."""

    def _priorities(self, errors: Any) -> Any:
        return errors + 1e-6


_LOG_PROBS = floats(low=-4.0, high=0.0)

MUTANTS = (
    mutant(
        ActorCriticLoss,
        ValuesThatLearnFromThePolicy,
        Cause.TARGET_HAS_GRADIENT,
        {"logits": floats(3), "values": floats(), "actions": ints(3), "returns": floats()},
    ),
    mutant(
        Surrogate,
        SurrogateOfTheMaximum,
        Cause.CLIPPED_WRONG_SIDE,
        {"log_probs": _LOG_PROBS, "old_log_probs": _LOG_PROBS, "advantages": floats()},
    ),
    mutant(
        PenalizedPolicyLoss,
        DivergenceIsRewarded,
        Cause.LOSS_SIGN,
        {"log_probs": _LOG_PROBS, "advantages": floats(), "kl": floats(low=0.0, high=2.0)},
    ),
    mutant(
        DoubleQLoss,
        DoubleQOfTheWrongNetwork,
        Cause.WRONG_BOOTSTRAP,
        {
            "q_values": floats(3),
            "actions": ints(3),
            "rewards": floats(),
            "terminated": bools(),
            "online_q_next": floats(3),
            "target_q_next": floats(3),
        },
    ),
    mutant(
        PrioritizedLoss,
        PrioritiesWithASign,
        Cause.NEGATIVE,
        {"q_values": floats(3), "actions": ints(3), "returns": floats(), "weights": floats(low=0.1, high=1.0)},
    ),
)

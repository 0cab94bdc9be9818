"""Losses that are wrong: targets with a gradient, shapes that broadcast, padding that counts, signs."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import bools, flags, floats, ints, mutant, steps

DISCOUNT = 0.99

# -- targets without a gradient --------------------------------------------------------------------------------------


class QLoss(Component):
    """Squared TD error of the chosen actions."""

    def __init__(self) -> None:
        super().__init__("q-loss")

    @graph_fn
    def loss(self, q_values: Any, actions: Any, rewards: Any, terminated: Any, target_q_next: Any) -> Any:
        chosen = ops.take_last(q_values, actions)
        return ops.mean(ops.square(chosen - self._target(rewards, terminated, target_q_next)))

    def _target(self, rewards: Any, terminated: Any, target_q_next: Any) -> Any:
        following = ops.where(terminated, 0.0, ops.max(target_q_next, -1))
        return ops.stop_gradient(rewards + DISCOUNT * following)


class QLossWithoutDetach(QLoss):
    """Deep-Q-Learning-Paper-To-Code #9 and #16: the target was part of what the backward pass went through."""

    def _target(self, rewards: Any, terminated: Any, target_q_next: Any) -> Any:
        return rewards + DISCOUNT * ops.where(terminated, 0.0, ops.max(target_q_next, -1))


class QLossOfDoneTargets(QLoss):
    """minimalRL #32, navneet-nmk/pytorch-rl #2: the done mask was missing from the target."""

    def _target(self, rewards: Any, terminated: Any, target_q_next: Any) -> Any:
        return ops.stop_gradient(rewards + DISCOUNT * ops.max(target_q_next, -1))


class TwinValues(Component):
    """Two heads with a frozen copy each; the smaller of the copies is the target of both."""

    def __init__(self) -> None:
        super().__init__("twins")
        self.first, self.second = Dense(1, scope="first"), Dense(1, scope="second")
        self.target_first = self.first.copy(scope="target-first", trainable=False)
        self.target_second = self.second.copy(scope="target-second", trainable=False)

    @api
    def loss(self, observations: Any, next_observations: Any, rewards: Any, terminated: Any) -> Any:
        values = self.first.call(observations), self.second.call(observations)
        return self._loss(*values, *self._next_values(next_observations), rewards, terminated)

    def _next_values(self, next_observations: Any) -> tuple[Any, Any]:
        first, second = self.target_first.call(next_observations), self.target_second.call(next_observations)
        return graph.stop_gradient(first), graph.stop_gradient(second)

    @graph_fn
    def _loss(self, first: Any, second: Any, next_first: Any, next_second: Any, rewards: Any, terminated: Any) -> Any:
        following = ops.squeeze(ops.minimum(next_first, next_second), -1)
        target = ops.expand_dims(rewards + DISCOUNT * ops.where(terminated, 0.0, following), -1)
        return ops.mean(ops.square(first - target) + ops.square(second - target))


class TwinValuesWithTheOnlineHead(TwinValues):
    """RLlib #64931: the second critic's target came from the head that is trained, so gradients ran into it."""

    def _next_values(self, next_observations: Any) -> tuple[Any, Any]:
        return graph.stop_gradient(self.target_first.call(next_observations)), self.second.call(next_observations)


class TemperatureLoss(Component):
    """Moves SAC's temperature towards a target entropy."""

    def __init__(self) -> None:
        super().__init__("temperature")

    def create_variables(self) -> None:
        self.log_alpha = self.variable("log_alpha", (), 0.1)

    @graph_fn
    def loss(self, log_probs: Any) -> Any:
        return -ops.mean(ops.exp(self.log_alpha.value) * (ops.stop_gradient(log_probs) - 2.0))


class TemperatureLossMovesThePolicy(TemperatureLoss):
    """ManiSkill #899: log-probabilities were not detached in the loss of the temperature."""

    @graph_fn
    def loss(self, log_probs: Any) -> Any:
        return -ops.mean(ops.exp(self.log_alpha.value) * (log_probs - 2.0))


# -- shapes ----------------------------------------------------------------------------------------------------------


class ValueLoss(Component):
    """Squared error of values (B, 1), as a head gives them, against returns (B,)."""

    def __init__(self) -> None:
        super().__init__("value-loss")

    @graph_fn
    def loss(self, values: Any, returns: Any) -> Any:
        return ops.mean(ops.square(ops.squeeze(values, -1) - ops.stop_gradient(returns)))


class ValueLossOfAllPairs(ValueLoss):
    """RLinf #1568: values (B,) met returns (B, 1), so that each value was trained on every return of the batch."""

    @graph_fn
    def loss(self, values: Any, returns: Any) -> Any:
        return ops.mean(ops.square(values - ops.stop_gradient(returns)))


class ValueLossBehindAReshape(ValueLoss):
    """PacktPublishing's A3C #33: values were flattened for one loss, and kept (B, 1) for the advantages."""

    @graph_fn
    def loss(self, values: Any, returns: Any) -> Any:
        errors = ops.reshape(values, (-1, 1)) - ops.stop_gradient(returns)
        return ops.mean(ops.square(ops.mean(errors, -1)))


class WeightedRegression(Component):
    """Weighted log-likelihood by the advantage of the chosen action (critic-regularized regression)."""

    def __init__(self) -> None:
        super().__init__("weighted-regression")

    @graph_fn
    def loss(self, log_probs: Any, q_values: Any, actions: Any) -> Any:
        advantages = ops.take_last(q_values, actions) - ops.mean(q_values, -1)
        return -ops.mean(log_probs * ops.exp(ops.stop_gradient(ops.clip(advantages, -3.0, 3.0))))


class WeightedRegressionWithKeepdims(WeightedRegression):
    """Acme #277: log-probabilities (B,) times coefficients (B, 1) gave (B, B), which a mean then hid."""

    @graph_fn
    def loss(self, log_probs: Any, q_values: Any, actions: Any) -> Any:
        chosen = ops.expand_dims(ops.take_last(q_values, actions), -1)
        advantages = chosen - ops.mean(q_values, -1, keepdims=True)
        return -ops.mean(log_probs * ops.exp(ops.stop_gradient(ops.clip(advantages, -3.0, 3.0))))


# -- padding and weights ---------------------------------------------------------------------------------------------


class SequenceLoss(Component):
    """Errors of values, and entropies, over the steps of sequences that are no padding."""

    def __init__(self) -> None:
        super().__init__("sequence-loss")

    @graph_fn
    def loss(self, values: Any, returns: Any, entropies: Any, mask: Any) -> Any:
        errors = ops.where(mask, values - ops.stop_gradient(returns), 0.0)
        return self._value_loss(errors, mask) - 0.01 * self._entropy(entropies, mask)

    def _value_loss(self, errors: Any, mask: Any) -> Any:
        return ops.sum(ops.square(errors)) / _count(mask)

    def _entropy(self, entropies: Any, mask: Any) -> Any:
        return ops.sum(ops.where(mask, entropies, 0.0)) / _count(mask)


class SequenceLossOverPadding(SequenceLoss):
    """RLlib #2992: zeros in the padding, but a mean over all steps, whose denominator counts the padding."""

    def _value_loss(self, errors: Any, mask: Any) -> Any:
        return ops.mean(ops.square(errors))


class SequenceLossWithEntropyOfPadding(SequenceLoss):
    """SB3-contrib #75: the entropy of RecurrentPPO was a mean over padded steps as well."""

    def _entropy(self, entropies: Any, mask: Any) -> Any:
        return ops.mean(entropies)


def _count(mask: Any) -> Any:
    return ops.maximum(ops.sum(ops.astype(mask, "float32")), 1.0)


class MaskedSurrogate(Component):
    """Policy gradient with normalized advantages, over sequences with padding."""

    def __init__(self) -> None:
        super().__init__("surrogate")

    @api
    def loss(self, log_probs: Any, advantages: Any, mask: Any) -> Any:
        return self._loss(log_probs, self._normalized(advantages, mask), mask)

    @graph_fn(mixes_batch=True, differentiable=False)
    def _normalized(self, advantages: Any, mask: Any) -> Any:
        center = ops.sum(ops.where(mask, advantages, 0.0)) / _count(mask)
        variance = ops.sum(ops.square(ops.where(mask, advantages - center, 0.0))) / _count(mask)
        return ops.where(mask, (advantages - center) / (ops.sqrt(variance) + 1e-8), 0.0)

    @graph_fn
    def _loss(self, log_probs: Any, advantages: Any, mask: Any) -> Any:
        return -ops.sum(ops.where(mask, log_probs, 0.0) * advantages) / _count(mask)


class MaskedSurrogateNormalizesPadding(MaskedSurrogate):
    """SB3-contrib #75: what RecurrentPPO normalizes with was taken over the padding as well."""

    @graph_fn(mixes_batch=True, differentiable=False)
    def _normalized(self, advantages: Any, mask: Any) -> Any:
        return ops.where(mask, (advantages - ops.mean(advantages)) / (ops.std(advantages) + 1e-8), 0.0)


class WeightedLoss(Component):
    """Squared TD errors with importance weights."""

    def __init__(self) -> None:
        super().__init__("weighted-loss")

    @graph_fn
    def loss(self, q_values: Any, actions: Any, returns: Any, weights: Any) -> Any:
        errors = ops.take_last(q_values, actions) - ops.stop_gradient(returns)
        return ops.mean(weights * ops.square(errors))


class WeightsBeforeSquaring(WeightedLoss):
    """Weights in a wrong place, as in ptan #36: here they multiply the error, and are squared with it."""

    @graph_fn
    def loss(self, q_values: Any, actions: Any, returns: Any, weights: Any) -> Any:
        errors = ops.take_last(q_values, actions) - ops.stop_gradient(returns)
        return ops.mean(ops.square(weights * errors))


class WeightsThatAreNotUsed(WeightedLoss):
    """Huskarl #11: prioritized replay returned importance weights that the loss never multiplied with."""

    @graph_fn
    def loss(self, q_values: Any, actions: Any, returns: Any, weights: Any) -> Any:
        return ops.mean(ops.square(ops.take_last(q_values, actions) - ops.stop_gradient(returns)))


# -- signs, and what no gradient reaches -----------------------------------------------------------------------------


class PolicyGradientLoss(Component):
    """Advantage actor-critic's loss of the policy."""

    def __init__(self) -> None:
        super().__init__("policy-loss")

    @graph_fn
    def loss(self, log_probs: Any, advantages: Any, entropies: Any) -> Any:
        return -ops.mean(log_probs * ops.stop_gradient(advantages)) - 0.01 * ops.mean(entropies)


class EntropyIsPunished(PolicyGradientLoss):
    """OpenSpiel #962, tensorflow/models #5058: the entropy was added to the loss instead of subtracted."""

    @graph_fn
    def loss(self, log_probs: Any, advantages: Any, entropies: Any) -> Any:
        return -ops.mean(log_probs * ops.stop_gradient(advantages)) + 0.01 * ops.mean(entropies)


class AdvantagesWithGradient(PolicyGradientLoss):
    """visdial-rl #13: without a detach the reward's model was trained by the policy gradient, too."""

    @graph_fn
    def loss(self, log_probs: Any, advantages: Any, entropies: Any) -> Any:
        return -ops.mean(log_probs * advantages) - 0.01 * ops.mean(entropies)


class ClippedSurrogate(Component):
    """PPO's surrogate on minibatches."""

    def __init__(self) -> None:
        super().__init__("clipped-surrogate")

    @graph_fn
    def loss(self, log_probs: Any, old_log_probs: Any, advantages: Any) -> Any:
        ratio = ops.exp(log_probs - ops.stop_gradient(old_log_probs))
        advantages = ops.stop_gradient(advantages)
        return -ops.mean(ops.minimum(ratio * advantages, ops.clip(ratio, 0.8, 1.2) * advantages))


class RatioOfThePresentPolicyToItself(ClippedSurrogate):
    """higgsfield #20, tensorforce #312: old log-probabilities were computed anew, so that the ratio was always 1."""

    @graph_fn
    def loss(self, log_probs: Any, old_log_probs: Any, advantages: Any) -> Any:
        ratio = ops.exp(log_probs - ops.stop_gradient(log_probs))
        advantages = ops.stop_gradient(advantages)
        return -ops.mean(ops.minimum(ratio * advantages, ops.clip(ratio, 0.8, 1.2) * advantages))


class SmoothPolicyLoss(Component):
    """Punishes how far actions are from those of the next observation (CAPS)."""

    def __init__(self) -> None:
        super().__init__("smoothness")
        self.policy = Dense(2, "tanh")

    @api
    def loss(self, observations: Any, next_observations: Any) -> Any:
        return self._distance(self.policy.call(observations), self.policy.call(next_observations))

    @graph_fn
    def _distance(self, actions: Any, next_actions: Any) -> Any:
        return ops.mean(ops.square(actions - next_actions))


class SmoothAcrossTheMinibatch(SmoothPolicyLoss):
    """XLRON #50: resampled rows were scanned as if they were consecutive steps."""

    @graph_fn
    def _distance(self, actions: Any, next_actions: Any) -> Any:
        following = ops.concat([actions[1:], next_actions[-1:]], axis=0)
        return ops.mean(ops.square(actions - following))


_TD = {
    "q_values": floats(3),
    "actions": ints(3),
    "rewards": floats(),
    "terminated": bools(),
    "target_q_next": floats(3),
}
_TWINS = {
    "observations": floats(4),
    "next_observations": floats(4),
    "rewards": floats(),
    "terminated": bools(),
}
_SEQUENCES = {
    "values": steps(),
    "returns": steps(),
    "entropies": steps(low=0.0, high=2.0),
    "mask": flags(),
}
_POLICY = {"log_probs": floats(low=-4.0, high=0.0), "advantages": floats(), "entropies": floats(low=0.0, high=2.0)}
_WEIGHTED = {"q_values": floats(3), "actions": ints(3), "returns": floats(), "weights": floats(low=0.1, high=1.0)}

MUTANTS = (
    mutant(QLoss, QLossWithoutDetach, Cause.TARGET_HAS_GRADIENT, _TD),
    mutant(QLoss, QLossOfDoneTargets, Cause.TERMINATION_IGNORED, _TD),
    mutant(TwinValues, TwinValuesWithTheOnlineHead, Cause.TARGET_HAS_GRADIENT, _TWINS),
    mutant(
        TemperatureLoss,
        TemperatureLossMovesThePolicy,
        Cause.TARGET_HAS_GRADIENT,
        {"log_probs": floats(low=-4.0, high=2.0)},
        constants={"loss": ("log_probs",)},
    ),
    mutant(ValueLoss, ValueLossOfAllPairs, Cause.BATCH_TWICE, {"values": floats(1), "returns": floats()}),
    mutant(ValueLoss, ValueLossBehindAReshape, Cause.BATCH_TWICE, {"values": floats(1), "returns": floats()}),
    mutant(
        WeightedRegression,
        WeightedRegressionWithKeepdims,
        Cause.BATCH_TWICE,
        {"log_probs": floats(low=-4.0, high=0.0), "q_values": floats(3), "actions": ints(3)},
    ),
    mutant(SequenceLoss, SequenceLossOverPadding, Cause.PADDING_COUNTS, _SEQUENCES),
    mutant(SequenceLoss, SequenceLossWithEntropyOfPadding, Cause.PADDING_COUNTS, _SEQUENCES),
    mutant(
        MaskedSurrogate,
        MaskedSurrogateNormalizesPadding,
        Cause.PADDING_COUNTS,
        {"log_probs": steps(low=-4.0, high=0.0), "advantages": steps(), "mask": flags()},
    ),
    mutant(WeightedLoss, WeightsBeforeSquaring, Cause.WEIGHT_NOT_LINEAR, _WEIGHTED),
    mutant(WeightedLoss, WeightsThatAreNotUsed, Cause.UNUSED_INPUT, _WEIGHTED),
    mutant(PolicyGradientLoss, EntropyIsPunished, Cause.ENTROPY_SIGN, _POLICY),
    mutant(PolicyGradientLoss, AdvantagesWithGradient, Cause.TARGET_HAS_GRADIENT, _POLICY),
    mutant(
        ClippedSurrogate,
        RatioOfThePresentPolicyToItself,
        Cause.UNUSED_INPUT,
        {
            "log_probs": floats(low=-4.0, high=0.0),
            "old_log_probs": floats(low=-4.0, high=0.0),
            "advantages": floats(),
        },
    ),
    mutant(
        SmoothPolicyLoss,
        SmoothAcrossTheMinibatch,
        Cause.ROW_ORDER_COUNTS,
        {"observations": floats(4), "next_observations": floats(4)},
    ),
)

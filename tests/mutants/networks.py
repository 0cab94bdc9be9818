"""Networks that are wrong: rows that meet, steps that look ahead, states that are not reset, parts that do nothing."""

from __future__ import annotations

import math
from typing import Any

from rlweave import graph, ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Dict, FloatBox
from rlweave.testing.checks.findings import Cause
from tests.mutants import flags, floats, ints, mutant, steps

# -- rows ------------------------------------------------------------------------------------------------------------


class CenteredFeatures(Component):
    """Features around a center that is learned."""

    def __init__(self) -> None:
        super().__init__("centered")

    def create_variables(self, inputs: Any) -> None:
        self.center = self.variable("center", inputs.shape, "standard_normal")

    @graph_fn
    def call(self, inputs: Any) -> Any:
        return ops.tanh(inputs - self.center.value)


class CenteredByTheBatch(CenteredFeatures):
    """A leak that our own harness once missed: features are centered by the mean of their batch."""

    @graph_fn
    def call(self, inputs: Any) -> Any:
        return ops.tanh(inputs - ops.mean(inputs, 0) - self.center.value)


class NormalizedPolicy(Component):
    """A policy head behind batch normalization: acting uses the statistics that updates have gathered."""

    def __init__(self) -> None:
        super().__init__("normalized-policy")
        self.head = Dense(2, "tanh")

    def create_variables(self, observations: Any) -> None:
        self.mean = self.variable("mean", observations.shape, 0.0, trainable=False)
        self.variance = self.variable("variance", observations.shape, 1.0, trainable=False)

    @api
    def actions(self, observations: Any) -> Any:
        return self.head.call(self._normalized(observations))

    @graph_fn(mixes_batch=True, differentiable=False)
    def update(self, observations: Any) -> None:
        self.mean.assign(0.9 * self.mean.value + 0.1 * ops.mean(observations, 0))
        self.variance.assign(0.9 * self.variance.value + 0.1 * ops.var(observations, 0))

    @graph_fn
    def _normalized(self, observations: Any) -> Any:
        return (observations - self.mean.value) / ops.sqrt(self.variance.value + 1e-5)


class PolicyWithBatchNorm(NormalizedPolicy):
    """coinrun #41, SB3 #614: batch normalization was in training mode while acting."""

    @graph_fn
    def _normalized(self, observations: Any) -> Any:
        return (observations - ops.mean(observations, 0)) / ops.sqrt(ops.var(observations, 0) + 1e-5)


class SequenceEncoder(Component):
    """Encodes sequences that come batch-major: (B, T, F) to time-major (T, B, units)."""

    def __init__(self) -> None:
        super().__init__("encoder")
        self.layer = Dense(3, "tanh")

    @api
    def call(self, inputs: Any) -> Any:
        return self.layer.call(self._time_major(inputs))

    @graph_fn
    def _time_major(self, inputs: Any) -> Any:
        return ops.permute_dims(inputs, (1, 0, 2))


class ReshapedInPlaceOfTransposed(SequenceEncoder):
    """SB3-contrib #111, lola #12, TorchRL #2086: axes of time and batch were swapped by a reshape."""

    @graph_fn
    def _time_major(self, inputs: Any) -> Any:
        return ops.reshape(inputs, (inputs.shape[1], inputs.shape[0], inputs.shape[2]))


class NoveltyBonus(Component):
    """A bonus for observations far from what a predictor expects."""

    def __init__(self) -> None:
        super().__init__("novelty")
        self.predictor = Dense(3, scope="predictor")
        self.target = self.predictor.copy(scope="target", trainable=False, initial="fresh")

    @api
    def bonus(self, observations: Any) -> Any:
        target = graph.stop_gradient(self.target.call(observations))
        return self._distance(self.predictor.call(observations), target)

    @graph_fn
    def _distance(self, predicted: Any, wanted: Any) -> Any:
        return ops.mean(ops.square(predicted - wanted), -1)


class BonusSharedByTheBatch(NoveltyBonus):
    """visdial-rl #12: with a mean over everything all rows of a batch got the same reward."""

    @graph_fn
    def _distance(self, predicted: Any, wanted: Any) -> Any:
        distances = ops.mean(ops.square(predicted - wanted), -1)
        return ops.zeros_like(distances) + ops.mean(distances)


class BonusDividedByTheBatch(NoveltyBonus):
    """RLinf #1471: a mean was taken over the wrong count, so that a number depended on sizes that mean nothing."""

    @graph_fn
    def _distance(self, predicted: Any, wanted: Any) -> Any:
        return ops.mean(ops.square(predicted - wanted), -1) / predicted.shape[0]


# -- time ------------------------------------------------------------------------------------------------------------


class TrajectoryAttention(Component):
    """Each step attends to itself and the steps before it."""

    def __init__(self) -> None:
        super().__init__("attention")
        self.queries, self.keys = Dense(4, scope="queries"), Dense(4, use_bias=False, scope="keys")

    @api
    def call(self, observations: Any) -> Any:
        return self._attend(self.queries.call(observations), self.keys.call(observations), observations)

    @graph_fn
    def _attend(self, queries: Any, keys: Any, observations: Any) -> Any:
        scores = ops.einsum("tbk,sbk->bts", queries, keys) / 2.0
        return ops.einsum("bts,sbf->tbf", ops.softmax(self._masked(scores)), observations)

    def _masked(self, scores: Any) -> Any:
        at = ops.arange(scores.shape[-1])
        return ops.where(ops.expand_dims(at, 1) >= at, scores, -1e9)


class AttentionToTheFuture(TrajectoryAttention):
    """Keras #23038, xformers #103: the causal mask was dropped in silence."""

    def _masked(self, scores: Any) -> Any:
        return scores


class RewardModel(Component):
    """Predicts the reward of a step from what was observed before it."""

    def __init__(self) -> None:
        super().__init__("reward-model")
        self.layer = Dense(1)

    @api
    def call(self, observations: Any) -> Any:
        return self.layer.call(self._seen(observations))

    @graph_fn
    def _seen(self, observations: Any) -> Any:
        before = ops.concat([ops.zeros_like(observations[:1]), observations[:-1]], axis=0)
        return ops.concat([observations, before], axis=-1)


class RewardModelOfTheNextObservation(RewardModel):
    """nmmo-environment #103 and others: an observation one step off; shifted this way, the answer is in the input."""

    @graph_fn
    def _seen(self, observations: Any) -> Any:
        return ops.concat([observations, ops.roll(observations, -1, 0)], axis=-1)


class Recurrent(Component):
    """A simple recurrent layer; its state is zero where an episode starts."""

    def __init__(self) -> None:
        super().__init__("recurrent")

    def create_variables(self, inputs: Any) -> None:
        self.kernel = self.variable("kernel", (inputs.shape[-1], 3), "standard_normal")
        self.recurrent_kernel = self.variable("recurrent_kernel", (3, 3), "orthogonal")

    @graph_fn(returns=2)
    def call(self, inputs: Any, state: Any, episode_start: Any) -> Any:
        def step(before: Any, at: Any) -> Any:
            x, start = at
            start = ops.expand_dims(start, -1)
            after = self._advance(before, x, start)
            return self._kept(after, start), after

        last, outputs = ops.scan(step, self._first(state), (ops.matmul(inputs, self.kernel.value), episode_start))
        return outputs, last

    def _first(self, state: Any) -> Any:
        return state

    def _advance(self, before: Any, x: Any, start: Any) -> Any:
        return ops.tanh(x + ops.matmul(ops.where(start, 0.0, before), self.recurrent_kernel.value))

    def _kept(self, after: Any, start: Any) -> Any:
        return after


class RecurrentOverEpisodes(Recurrent):
    """Tianshou #486, IsaacLab #3837: the state of the episode before went on into the next one."""

    def _advance(self, before: Any, x: Any, start: Any) -> Any:
        return ops.tanh(x + ops.matmul(before, self.recurrent_kernel.value))


class RecurrentResetAfterTheStep(Recurrent):
    """Mava #1006: the reset was tied to the wrong step, so that an episode's first step still saw the old state."""

    def _advance(self, before: Any, x: Any, start: Any) -> Any:
        return ops.tanh(x + ops.matmul(before, self.recurrent_kernel.value))

    def _kept(self, after: Any, start: Any) -> Any:
        return ops.where(start, 0.0, after)


class RecurrentFromZeros(Recurrent):
    """allenact #77, RLTrader #49: the state that was stored for a sequence, or passed while testing, was not used."""

    def _first(self, state: Any) -> Any:
        return ops.zeros_like(state)


# -- parts that do nothing -------------------------------------------------------------------------------------------

OBSERVATIONS = Dict(position=FloatBox(shape=(2,)), velocity=FloatBox(shape=(2,)), goal=FloatBox(shape=(2,)))


class GoalPolicy(Component):
    """Actions from all leaves of an observation."""

    def __init__(self) -> None:
        super().__init__("goal-policy")
        self.layer = Dense(2, "tanh")

    @api
    def actions(self, observations: Any) -> Any:
        return self.layer.call(self._joined(observations))

    @graph_fn
    def _joined(self, observations: Any) -> Any:
        return ops.concat([observations["goal"], observations["position"], observations["velocity"]], axis=-1)


class GoalThatNobodyReads(GoalPolicy):
    """deep_rl_zoo #12 read one frame of a stack; here one leaf of an observation is left out of the network."""

    @graph_fn
    def _joined(self, observations: Any) -> Any:
        return ops.concat([observations["position"], observations["velocity"]], axis=-1)


class ActionValue(Component):
    """The value of an action."""

    def __init__(self) -> None:
        super().__init__("critic")
        self.hidden, self.head = Dense(4, "tanh", scope="hidden"), Dense(1, scope="head")

    @api
    def call(self, observations: Any, actions: Any) -> Any:
        return self.head.call(self.hidden.call(self._joined(observations, actions)))

    @graph_fn
    def _joined(self, observations: Any, actions: Any) -> Any:
        return ops.concat([observations, actions], axis=-1)


class ValueOfNoAction(ActionValue):
    """pytorch/examples #46: the actor of actor-critic was not used; here it is what the critic is to judge."""

    @graph_fn
    def _joined(self, observations: Any, actions: Any) -> Any:
        return ops.concat([observations, ops.zeros_like(actions)], axis=-1)


class GaussianHead(Component):
    """Mean and deviation of actions; the deviation does not depend on the observation."""

    def __init__(self) -> None:
        super().__init__("gaussian")
        self.mean = Dense(2, scope="mean")

    def create_variables(self) -> None:
        self.log_std = self.variable("log_std", (2,), -0.5)

    @api
    def call(self, observations: Any) -> Any:
        return self._parameters(self.mean.call(observations))

    @graph_fn(returns=2)
    def _parameters(self, mean: Any) -> Any:
        return mean, ops.zeros_like(mean) + ops.exp(self.log_std.value)


class DeviationThatIsNotUsed(GaussianHead):
    """mgail #2 asks it of a policy: whether what looks like a learned deviation is a fixed one."""

    @graph_fn(returns=2)
    def _parameters(self, mean: Any) -> Any:
        return mean, ops.full_like(mean, math.exp(-0.5))


class SharedEncoder(Component):
    """An encoder whose features a value head and a policy head train."""

    def __init__(self) -> None:
        super().__init__("shared")
        self.encoder = Dense(4, "tanh", scope="encoder")
        self.policy, self.value = Dense(3, scope="policy"), Dense(1, scope="value")

    @api
    def loss(self, observations: Any, actions: Any, returns: Any) -> Any:
        features = self._features(observations)
        return self._loss(self.policy.call(features), self.value.call(features), actions, returns)

    def _features(self, observations: Any) -> Any:
        return self.encoder.call(observations)

    @graph_fn
    def _loss(self, logits: Any, values: Any, actions: Any, returns: Any) -> Any:
        log_probs = ops.take_last(ops.log_softmax(logits), actions)
        errors = ops.squeeze(values, -1) - ops.stop_gradient(returns)
        return -ops.mean(log_probs * ops.stop_gradient(returns)) + 0.5 * ops.mean(ops.square(errors))


class EncoderThatNobodyTrains(SharedEncoder):
    """genrl #315: the convolutions in front of actor and critic got no gradient."""

    def _features(self, observations: Any) -> Any:
        return graph.stop_gradient(self.encoder.call(observations))


class DiscreteLatents(Component):
    """A one-hot code of an observation, with the gradient of its probabilities (straight-through), and a decoder."""

    def __init__(self) -> None:
        super().__init__("latents")
        self.encoder, self.decoder = Dense(5, scope="encoder"), Dense(4, scope="decoder")

    @api
    def loss(self, observations: Any) -> Any:
        code = self._code(self.encoder.call(observations))
        return self._error(self.decoder.call(code), observations)

    @graph_fn
    def _code(self, logits: Any) -> Any:
        probabilities = ops.softmax(logits)
        code = ops.one_hot(ops.argmax(logits, -1), 5)
        return code + probabilities - ops.stop_gradient(probabilities)

    @graph_fn
    def _error(self, decoded: Any, observations: Any) -> Any:
        return ops.mean(ops.square(decoded - observations))


class LatentsWithoutStraightThrough(DiscreteLatents):
    """navix #152, dreamer-pytorch #41: gradients had to pass a categorical sample, and did not."""

    @graph_fn
    def _code(self, logits: Any) -> Any:
        return ops.one_hot(ops.argmax(logits, -1), 5)


_STATES = {"inputs": steps(2), "state": floats(3), "episode_start": flags()}
_FEATURES = {"observations": floats(4)}

MUTANTS = (
    mutant(CenteredFeatures, CenteredByTheBatch, Cause.ROWS_MEET, {"inputs": floats(4)}),
    mutant(NormalizedPolicy, PolicyWithBatchNorm, Cause.ROWS_MEET, _FEATURES, calls=("update", "actions")),
    mutant(
        SequenceEncoder,
        ReshapedInPlaceOfTransposed,
        Cause.ROWS_MEET,
        {"inputs": floats(3, 2)},
    ),
    mutant(NoveltyBonus, BonusSharedByTheBatch, Cause.ROWS_MEET, _FEATURES),
    mutant(NoveltyBonus, BonusDividedByTheBatch, Cause.BATCH_SIZE_COUNTS, _FEATURES),
    mutant(TrajectoryAttention, AttentionToTheFuture, Cause.LOOKS_AHEAD, {"observations": steps(4)}),
    mutant(RewardModel, RewardModelOfTheNextObservation, Cause.LOOKS_AHEAD, {"observations": steps(4)}),
    mutant(Recurrent, RecurrentOverEpisodes, Cause.STATE_NOT_RESET, _STATES),
    mutant(Recurrent, RecurrentResetAfterTheStep, Cause.STATE_NOT_RESET, _STATES),
    mutant(Recurrent, RecurrentFromZeros, Cause.FRAGMENTS_DIFFER, _STATES),
    mutant(GoalPolicy, GoalThatNobodyReads, Cause.UNUSED_INPUT, {"observations": OBSERVATIONS.with_batch_rank()}),
    mutant(ActionValue, ValueOfNoAction, Cause.UNUSED_INPUT, {**_FEATURES, "actions": floats(2, low=-1.0, high=1.0)}),
    mutant(GaussianHead, DeviationThatIsNotUsed, Cause.UNUSED_VARIABLE, _FEATURES),
    mutant(
        SharedEncoder,
        EncoderThatNobodyTrains,
        Cause.NOT_TRAINED,
        {**_FEATURES, "actions": ints(3), "returns": floats()},
    ),
    mutant(DiscreteLatents, LatentsWithoutStraightThrough, Cause.NOT_TRAINED, _FEATURES),
)

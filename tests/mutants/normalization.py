"""Normalization and arithmetic that are wrong: what learns while it evaluates, or divides by nothing."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import floats, mutant, steps


class ObservationNormalizer(Component):
    """Running mean and variance of observations; they move only while training."""

    def __init__(self) -> None:
        super().__init__("normalizer")

    def create_variables(self, observations: Any) -> None:
        self.mean = self.variable("mean", observations.shape, 0.0, trainable=False)
        self.variance = self.variable("variance", observations.shape, 1.0, trainable=False)

    @api(static=("training",))
    def call(self, observations: Any, training: bool = False) -> Any:
        scaled = self._scaled(observations)
        if self._learns(training):
            self._update(observations)
        return scaled

    def _learns(self, training: bool) -> bool:
        return training

    @graph_fn
    def _scaled(self, observations: Any) -> Any:
        return (observations - self.mean.value) / ops.sqrt(self.variance.value + 1e-5)

    @graph_fn(mixes_batch=True, differentiable=False)
    def _update(self, observations: Any) -> None:
        self.mean.assign(0.99 * self.mean.value + 0.01 * ops.mean(observations, 0))
        self.variance.assign(0.99 * self.variance.value + 0.01 * ops.var(observations, 0))


class NormalizerThatLearnsInEvaluation(ObservationNormalizer):
    """rl-baselines3-zoo #275: evaluation environments went on to update the statistics."""

    def _learns(self, training: bool) -> bool:
        return True


class AdvantageNormalization(Component):
    """Advantages with mean 0 and deviation 1."""

    def __init__(self) -> None:
        super().__init__("advantages")

    @graph_fn(mixes_batch=True, differentiable=False)
    def call(self, advantages: Any) -> Any:
        return (advantages - ops.mean(advantages)) / (ops.std(advantages) + 1e-8)


class AdvantagesDividedByZero(AdvantageNormalization):
    """deep_rl_zoo #17, Tianshou #1298, Stable-Baselines #723: equal advantages, or a single one, became NaN."""

    @graph_fn(mixes_batch=True, differentiable=False)
    def call(self, advantages: Any) -> Any:
        return (advantages - ops.mean(advantages)) / ops.std(advantages)


class AdvantagesByTheArraysOwnMethod(AdvantageNormalization):
    """UniRL #341 mixed deviations of a population and of a sample; std() of torch and of NumPy differ by default."""

    @graph_fn(mixes_batch=True, differentiable=False)
    def call(self, advantages: Any) -> Any:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


class AdvantagesByADifferenceOfSquares(AdvantageNormalization):
    """VOLK #290, sherpa-onnx #3857: E[x^2] - E[x]^2 cancels far from zero; the variance was negative, its root NaN."""

    @graph_fn(mixes_batch=True, differentiable=False)
    def call(self, advantages: Any) -> Any:
        center = ops.mean(advantages)
        return (advantages - center) / ops.sqrt(ops.mean(ops.square(advantages)) - center * center + 1e-6)


class RewardPrediction(Component):
    """Predicts rewards as categories of equal width."""

    def __init__(self) -> None:
        super().__init__("reward-prediction")
        self.head = Dense(5)

    @api
    def loss(self, observations: Any, rewards: Any) -> Any:
        return self._loss(self.head.call(observations), rewards)

    @graph_fn
    def _loss(self, predicted: Any, rewards: Any) -> Any:
        wanted = ops.one_hot(ops.clip(ops.astype(ops.floor(ops.clip(rewards, -9.0, 9.0)), "int32") + 2, 0, 4), 5)
        return -ops.mean(ops.sum(wanted * ops.log_softmax(predicted), -1))


class RewardPredictionThatMixes(RewardPrediction):
    """A declaration copied from the function above: rows do not meet here, and replicas are slowed down for nothing."""

    @graph_fn(mixes_batch=True)
    def _loss(self, predicted: Any, rewards: Any) -> Any:
        wanted = ops.one_hot(ops.clip(ops.astype(ops.floor(ops.clip(rewards, -9.0, 9.0)), "int32") + 2, 0, 4), 5)
        return -ops.mean(ops.sum(wanted * ops.log_softmax(predicted), -1))


class Codebook(Component):
    """The nearest of some learned codes, and the loss that moves codes to inputs."""

    def __init__(self) -> None:
        super().__init__("codebook")

    def create_variables(self, inputs: Any) -> None:
        self.codes = self.variable("codes", (6, inputs.shape[-1]), "standard_normal")

    @graph_fn
    def loss(self, inputs: Any) -> Any:
        distances = ops.sum(ops.square(ops.expand_dims(inputs, -2) - self.codes.value), -1)
        nearest = ops.take(self.codes.value, ops.argmin(distances, -1))
        return ops.mean(ops.square(self._moved(nearest, inputs) - ops.stop_gradient(inputs)))

    def _moved(self, nearest: Any, inputs: Any) -> Any:
        return nearest


class CodebookBehindStraightThrough(Codebook):
    """jax-vqvae-gpt #2: the loss of the codes came after the straight-through trick, and no gradient reached them."""

    def _moved(self, nearest: Any, inputs: Any) -> Any:
        return inputs + ops.stop_gradient(nearest - inputs)


class GoalDistance(Component):
    """How far a state is from its goal."""

    def __init__(self) -> None:
        super().__init__("goal-distance")

    @graph_fn
    def call(self, positions: Any, goals: Any) -> Any:
        return ops.sqrt(ops.sum(ops.square(positions - goals), -1) + 1e-8)


class GoalDistanceAtTheGoal(GoalDistance):
    """pytorch #2421, jax #21723: the gradient of a norm is NaN where the norm is zero, as at a goal that is reached."""

    @graph_fn
    def call(self, positions: Any, goals: Any) -> Any:
        return ops.sqrt(ops.sum(ops.square(positions - goals), -1))


class PositiveRoot(Component):
    """Roots of what is positive; zero otherwise."""

    def __init__(self) -> None:
        super().__init__("positive-root")

    @graph_fn
    def call(self, inputs: Any) -> Any:
        positive = inputs > 0.0
        return ops.where(positive, ops.sqrt(ops.where(positive, inputs, 1.0)), 0.0)


class RootBehindWhere(PositiveRoot):
    """pytorch #187297, tinygrad #12409: what where() does not choose still sends NaN into the gradient."""

    @graph_fn
    def call(self, inputs: Any) -> Any:
        return ops.where(inputs > 0.0, ops.sqrt(inputs), 0.0)


class SequenceWhitening(Component):
    """Observations of a trajectory, centered by the mean of what came before and of themselves."""

    def __init__(self) -> None:
        super().__init__("whitening")

    @graph_fn
    def call(self, observations: Any) -> Any:
        count = ops.reshape(ops.arange(1, observations.shape[0] + 1), (-1,) + (1,) * (len(observations.shape) - 1))
        return observations - ops.cumulative_sum(observations, 0) / ops.astype(count, "float32")


class SequenceWhiteningByTheWhole(SequenceWhitening):
    """Observations of a rollout were normalized by all of it, which nobody has who acts (see coinrun #41)."""

    @graph_fn
    def call(self, observations: Any) -> Any:
        return observations - ops.mean(observations, 0)


MUTANTS = (
    mutant(
        ObservationNormalizer,
        NormalizerThatLearnsInEvaluation,
        Cause.EVALUATION_LEARNS,
        {"observations": floats(3)},
        static={"call": {"training": False}},
    ),
    mutant(AdvantageNormalization, AdvantagesDividedByZero, Cause.NOT_FINITE, {"advantages": floats()}),
    mutant(AdvantageNormalization, AdvantagesByADifferenceOfSquares, Cause.NOT_FINITE, {"advantages": floats()}),
    mutant(AdvantageNormalization, AdvantagesByTheArraysOwnMethod, Cause.BACKENDS_DIFFER, {"advantages": floats()}),
    mutant(
        RewardPrediction,
        RewardPredictionThatMixes,
        Cause.UNNEEDED_DECLARATION,
        {"observations": floats(4), "rewards": floats()},
    ),
    mutant(GoalDistance, GoalDistanceAtTheGoal, Cause.NOT_FINITE, {"positions": floats(2), "goals": floats(2)}),
    mutant(PositiveRoot, RootBehindWhere, Cause.NOT_FINITE, {"inputs": floats(3)}),
    mutant(Codebook, CodebookBehindStraightThrough, Cause.NOT_TRAINED, {"inputs": floats(3)}),
    mutant(SequenceWhitening, SequenceWhiteningByTheWhole, Cause.LOOKS_AHEAD, {"observations": steps(3)}),
)

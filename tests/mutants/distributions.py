"""Distributions that are wrong: densities that are none, frequencies that are not those reported."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import bools, floats, ints, mutant

LOG_2PI = math.log(2.0 * math.pi)


def normal_log_density(u: Any, mean: Any, log_std: Any) -> Any:
    """Of independent normal distributions, elementwise."""
    return -0.5 * ops.square((u - mean) * ops.exp(-log_std)) - log_std - 0.5 * LOG_2PI


class TanhNormal(Component):
    """A normal distribution through tanh, scaled to [-2, 2]; log-probabilities are summed over the action."""

    scale = 2.0

    def __init__(self) -> None:
        super().__init__("tanh-normal")

    @graph_fn(returns=2)
    def sample_and_log_prob(self, mean: Any, log_std: Any) -> Any:
        u = mean + ops.exp(log_std) * ops.random.normal(mean.shape)
        return self.scale * ops.tanh(u), self._log_prob(u, mean, log_std)

    @graph_fn
    def log_prob(self, mean: Any, log_std: Any, actions: Any) -> Any:
        inside = ops.clip(actions / self.scale, -1.0 + 1e-6, 1.0 - 1e-6)
        return self._log_prob(0.5 * (ops.log1p(inside) - ops.log1p(-inside)), mean, log_std)

    def _log_prob(self, u: Any, mean: Any, log_std: Any) -> Any:
        return ops.sum(normal_log_density(u, mean, log_std) - self._log_slope(u), -1)

    def _log_slope(self, u: Any) -> Any:
        """Of the function from u to the action: log(scale * (1 - tanh(u)^2)), without cancellation."""
        return math.log(self.scale) + 2.0 * (math.log(2.0) - u - ops.softplus(-2.0 * u))


class TanhNormalWithoutJacobian(TanhNormal):
    """CleanRL #428 asks why it is there; without the slope of tanh the density is that of another variable."""

    def _log_slope(self, u: Any) -> Any:
        return ops.zeros_like(u)


class TanhNormalWithJacobianTwice(TanhNormal):
    """Hands-on-RL #44: tanh was applied to what had passed tanh already, and the correction belonged to no variable."""

    def _log_slope(self, u: Any) -> Any:
        return 2.0 * super()._log_slope(u)


class TanhNormalWithJacobianAdded(TanhNormal):
    """What RLax #11 suspected: the logarithm of the slope is added where it is to be subtracted."""

    def _log_slope(self, u: Any) -> Any:
        return -super()._log_slope(u)


class TanhNormalOfAnUnscaledAction(TanhNormal):
    """Spinning Up #314: the scale of the action box is missing from the log-probability."""

    def _log_slope(self, u: Any) -> Any:
        return 2.0 * (math.log(2.0) - u - ops.softplus(-2.0 * u))


class ClippedNormal(Component):
    """Unbounded normal actions with their log-probabilities; only the environment's actions are clipped."""

    def __init__(self) -> None:
        super().__init__("clipped-normal")

    @graph_fn(returns=2)
    def sample_and_log_prob(self, mean: Any, log_std: Any) -> Any:
        actions = mean + ops.exp(log_std) * ops.random.normal(mean.shape)
        return self._stored(actions), ops.sum(normal_log_density(actions, mean, log_std), -1)

    @graph_fn
    def log_prob(self, mean: Any, log_std: Any, actions: Any) -> Any:
        return ops.sum(normal_log_density(actions, mean, log_std), -1)

    def _stored(self, actions: Any) -> Any:
        return actions


class ClippedActionsAreStored(ClippedNormal):
    """Tianshou #312, RLlib #8889: the clipped action was stored beside the log-probability of the one before."""

    def _stored(self, actions: Any) -> Any:
        return ops.clip(actions, -1.0, 1.0)


class TanhNormalWithPlainLogarithm(TanhNormal):
    """autonomous-learning-library #139: log(1 - a^2) of an action at its bound, or beyond, is no number."""

    def _log_slope(self, u: Any) -> Any:
        return math.log(self.scale) + ops.log(1.0 - ops.square(ops.tanh(u)))


class Categorical(Component):
    """Draws categories from unnormalized logarithms of their probabilities, and reports log-probabilities."""

    def __init__(self) -> None:
        super().__init__("categorical")

    @graph_fn(returns=2)
    def sample_and_log_prob(self, logits: Any) -> Any:
        actions = self._draw(logits)
        return actions, ops.take_last(ops.log_softmax(logits), self._reported(logits, actions))

    @graph_fn
    def log_prob(self, logits: Any, actions: Any) -> Any:
        return ops.take_last(ops.log_softmax(logits), actions)

    @graph_fn
    def entropy(self, logits: Any) -> Any:
        log_probs = ops.log_softmax(logits)
        return -ops.sum(ops.exp(log_probs) * log_probs, -1)

    def _draw(self, logits: Any) -> Any:
        return ops.random.categorical(logits)

    def _reported(self, logits: Any, actions: Any) -> Any:
        return actions


class CategoricalWithTwoSoftmaxes(Categorical):
    """alpha-zero-general #45, RL_course_2019 #6: probabilities were passed where logits are expected."""

    def _draw(self, logits: Any) -> Any:
        return ops.random.categorical(ops.softmax(logits))


class CategoricalDrawnAgain(Categorical):
    """DeepLearningVideoGames #7: the action that is stored was drawn anew, and is not the one that is taken."""

    def _reported(self, logits: Any, actions: Any) -> Any:
        return ops.random.categorical(logits)


class EntropyOfUnderflow(Categorical):
    """tensorflow/models #5058: an entropy from p * log(p), where p can be 0."""

    @graph_fn
    def entropy(self, logits: Any) -> Any:
        probabilities = ops.softmax(logits)
        return -ops.sum(probabilities * ops.log(probabilities), -1)


class ReturnDistribution(Component):
    """The target distribution of C51: that of the next state, moved by the reward and put back on the atoms."""

    def __init__(self) -> None:
        super().__init__("projection")

    @graph_fn(differentiable=False)
    def probabilities(self, rewards: Any, terminated: Any, target_logits: Any) -> Any:
        atoms = ops.linspace(-2.0, 2.0, 5)
        following = ops.where(ops.expand_dims(terminated, -1), 0.0, 0.9 * atoms)
        places = ops.clip(ops.expand_dims(rewards, -1) + following, -2.0, 2.0) + 2.0
        shares = self._shares(places)
        return ops.einsum("bj,bji->bi", ops.softmax(target_logits), shares)

    def _shares(self, places: Any) -> Any:
        """How much of atom j goes to atom i, (B, j, i)."""
        distances = ops.abs(ops.expand_dims(places, -1) - ops.astype(ops.arange(5), "float32"))
        return ops.clip(1.0 - distances, 0.0, 1.0)


class ProjectionThatLosesMass(ReturnDistribution):
    """rainbow-is-all-you-need #76: what fell exactly on an atom was lost, as its floor and its ceiling are the same."""

    def _shares(self, places: Any) -> Any:
        lower, upper = ops.astype(ops.floor(places), "int32"), ops.astype(ops.ceil(places), "int32")
        below = ops.expand_dims(ops.ceil(places) - places, -1) * ops.one_hot(lower, 5)
        above = ops.expand_dims(places - ops.floor(places), -1) * ops.one_hot(upper, 5)
        return below + above


_NORMAL = {"mean": floats(1), "log_std": floats(1, low=-1.5, high=0.5)}
_TANH = {**_NORMAL, "actions": floats(1, low=-1.9, high=1.9)}
_LOGITS = {"logits": floats(4), "actions": ints(4)}
_ATOMS = {"rewards": floats(), "terminated": bools(), "target_logits": floats(5)}

MUTANTS = (
    mutant(TanhNormal, TanhNormalWithoutJacobian, Cause.NOT_A_DENSITY, _TANH),
    mutant(TanhNormal, TanhNormalWithJacobianTwice, Cause.NOT_A_DENSITY, _TANH),
    mutant(TanhNormal, TanhNormalWithJacobianAdded, Cause.NOT_A_DENSITY, _TANH),
    mutant(TanhNormal, TanhNormalOfAnUnscaledAction, Cause.NOT_A_DENSITY, _TANH),
    mutant(TanhNormal, TanhNormalWithPlainLogarithm, Cause.NOT_FINITE, _TANH),
    mutant(ClippedNormal, ClippedActionsAreStored, Cause.WRONG_FREQUENCIES, {**_NORMAL, "actions": floats(1)}),
    mutant(Categorical, CategoricalWithTwoSoftmaxes, Cause.WRONG_FREQUENCIES, _LOGITS),
    mutant(Categorical, CategoricalDrawnAgain, Cause.WRONG_FREQUENCIES, _LOGITS),
    mutant(Categorical, EntropyOfUnderflow, Cause.NOT_FINITE, _LOGITS),
    mutant(ReturnDistribution, ProjectionThatLosesMass, Cause.NOT_A_DENSITY, _ATOMS),
)

"""Distributions with one fault each, and right ones: of categories, of floats, of policies, with masks."""

import math

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing import Cause, Descriptor, check

LOGITS = {
    "logits": FloatBox(shape=(4,), add_batch_rank=True),
    "actions": IntBox(4, add_batch_rank=True),
}
NORMAL = {
    "mean": FloatBox(shape=(2,), add_batch_rank=True),
    "log_std": FloatBox(low=-1.0, high=0.5, shape=(2,), add_batch_rank=True),
    "values": FloatBox(shape=(2,), add_batch_rank=True),
}
SQUASHED = {
    "mean": FloatBox(low=-0.5, high=0.5, shape=(), add_batch_rank=True),
    "values": FloatBox(low=-0.9, high=0.9, add_batch_rank=True),
}
MASKED = {
    "logits": FloatBox(shape=(4,), add_batch_rank=True),
    "mask": BoolBox(shape=(4,), add_batch_rank=True),
}


class Categories(Component):
    def __init__(self):
        super().__init__("categories")

    @graph_fn
    def sample(self, logits):
        return ops.random.categorical(logits)

    @graph_fn
    def log_prob(self, logits, actions):
        return ops.take_last(ops.log_softmax(logits), actions)

    @graph_fn
    def entropy(self, logits):
        log_probs = ops.log_softmax(logits)
        return -ops.sum(ops.exp(log_probs) * log_probs, axis=-1)

    @graph_fn
    def mode(self, logits):
        return ops.argmax(logits, axis=-1)


class SoftmaxTwice(Categories):
    @graph_fn
    def log_prob(self, logits, actions):
        return ops.take_last(ops.log_softmax(ops.softmax(logits)), actions)


class CategoryBefore(Categories):
    @graph_fn
    def log_prob(self, logits, actions):
        return ops.take_last(ops.log_softmax(logits), ops.remainder(actions + 3, 4))


class SamplesFromOne(Categories):
    @graph_fn
    def sample(self, logits):
        return ops.random.categorical(logits) + 1


class LogitsAsLogProbabilities(Categories):
    @graph_fn
    def log_prob(self, logits, actions):
        return ops.take_last(logits, actions)


class NegativeEntropy(Categories):
    @graph_fn
    def entropy(self, logits):
        log_probs = ops.log_softmax(logits)
        return ops.sum(ops.exp(log_probs) * log_probs, axis=-1)


class EntropyOfLogits(Categories):
    @graph_fn
    def entropy(self, logits):
        return -ops.sum(ops.softmax(logits) * logits, axis=-1)


class LeastLikely(Categories):
    @graph_fn
    def mode(self, logits):
        return ops.argmax(-logits, axis=-1)


class Normal(Component):
    """Elementwise, as those of the library are."""

    def __init__(self):
        super().__init__("normal")

    @graph_fn
    def sample(self, mean, log_std):
        return mean + ops.exp(log_std) * ops.random.normal(mean.shape)

    @graph_fn
    def log_prob(self, mean, log_std, values):
        z = (values - mean) * ops.exp(-log_std)
        return -0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)

    @graph_fn
    def entropy(self, mean, log_std):
        return log_std + 0.5 * math.log(2.0 * math.pi * math.e)


class VarianceForDeviation(Normal):
    @graph_fn
    def sample(self, mean, log_std):
        return mean + ops.exp(2.0 * log_std) * ops.random.normal(mean.shape)


class WithoutNormalizer(Normal):
    @graph_fn
    def log_prob(self, mean, log_std, values):
        return -0.5 * ops.square((values - mean) * ops.exp(-log_std)) - log_std


class EntropyWithoutHalf(Normal):
    @graph_fn
    def entropy(self, mean, log_std):
        return log_std + math.log(2.0 * math.pi * math.e)


class Summed(Normal):
    """The density of all components together."""

    @graph_fn
    def log_prob(self, mean, log_std, values):
        z = (values - mean) * ops.exp(-log_std)
        return ops.sum(-0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi), axis=-1)

    @graph_fn
    def entropy(self, mean, log_std):
        return ops.sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e), axis=-1)


class CorrelatedButReportedApart(Summed):
    @graph_fn
    def sample(self, mean, log_std):
        one, other = ops.random.normal(mean.shape), ops.random.normal((mean.shape[0], 1))
        return mean + ops.exp(log_std) * math.sqrt(0.5) * (one + other)


class Squashed(Component):
    """tanh(u), u normal with deviation 0.6."""

    def __init__(self):
        super().__init__("squashed")

    @graph_fn
    def sample(self, mean):
        return ops.tanh(mean + 0.6 * ops.random.normal(mean.shape))

    @graph_fn
    def log_prob(self, mean, values):
        u = 0.5 * (ops.log1p(values) - ops.log1p(-values))
        z = (u - mean) / 0.6
        return -0.5 * z * z - math.log(0.6) - 0.5 * math.log(2.0 * math.pi) - self._slope(values)

    def _slope(self, values):
        return ops.log(1.0 - values * values)


class WithoutJacobian(Squashed):
    def _slope(self, values):
        return 0.0 * values


class JacobianTwice(Squashed):
    def _slope(self, values):
        return 2.0 * ops.log(1.0 - values * values)


class InAnotherUnit(Squashed):
    """The density is that of half the number."""

    def _slope(self, values):
        return ops.log(1.0 - values * values) - math.log(2.0)


WRONG = [
    (SoftmaxTwice, LOGITS, Cause.WRONG_FREQUENCIES, "categories.log_prob"),
    (CategoryBefore, LOGITS, Cause.WRONG_FREQUENCIES, "categories.log_prob"),
    (SamplesFromOne, LOGITS, Cause.ACTION_OUTSIDE, "categories.sample"),
    (LogitsAsLogProbabilities, LOGITS, Cause.NOT_A_DENSITY, "categories.log_prob"),
    (NegativeEntropy, LOGITS, Cause.ENTROPY_SIGN, "categories.entropy"),
    (EntropyOfLogits, LOGITS, Cause.WRONG_ENTROPY, "categories.entropy"),
    (LeastLikely, LOGITS, Cause.WRONG_FREQUENCIES, "categories.mode"),
    (VarianceForDeviation, NORMAL, Cause.WRONG_FREQUENCIES, "normal.log_prob"),
    (WithoutNormalizer, NORMAL, Cause.NOT_A_DENSITY, "normal.log_prob"),
    (EntropyWithoutHalf, NORMAL, Cause.WRONG_ENTROPY, "normal.entropy"),
    (CorrelatedButReportedApart, NORMAL, Cause.WRONG_FREQUENCIES, "normal.log_prob"),
    (WithoutJacobian, SQUASHED, Cause.NOT_A_DENSITY, "squashed.log_prob"),
    (JacobianTwice, SQUASHED, Cause.NOT_A_DENSITY, "squashed.log_prob"),
    (InAnotherUnit, SQUASHED, Cause.NOT_A_DENSITY, "squashed.log_prob"),
]


@pytest.mark.parametrize(("component", "spaces", "cause", "place"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_a_wrong_distribution_is_found(component, spaces, cause, place):
    finding = _finding(check(component, spaces), cause)
    assert place in finding.where
    assert "test_distributions.py:" in finding.where


# -- actions with their log-probabilities, and no density ----------------------------------------------------------


class Actor(Component):
    """A policy of one layer that takes one of three actions."""

    def __init__(self):
        super().__init__("actor")

    def create_variables(self, observations):
        self.kernel = self.variable("kernel", (3, 3), initializer="standard_normal")

    @api
    def act(self, observations):
        return self._choose(self._logits(observations))

    @graph_fn
    def _logits(self, observations):
        return ops.matmul(observations, self.kernel.value)

    @graph_fn(returns=2)
    def _choose(self, logits):
        actions = ops.random.categorical(logits)
        return actions, ops.take_last(ops.log_softmax(logits), actions)


class ActorWithTwoDraws(Actor):
    @graph_fn(returns=2)
    def _choose(self, logits):
        reported = ops.take_last(ops.log_softmax(logits), ops.random.categorical(logits))
        return ops.random.categorical(logits), reported


class ActorWithWarmth(Actor):
    @graph_fn(returns=2)
    def _choose(self, logits):
        actions = ops.random.categorical(0.3 * logits)
        return actions, ops.take_last(ops.log_softmax(logits), actions)


class ActorWithLogits(Actor):
    @graph_fn(returns=2)
    def _choose(self, logits):
        actions = ops.random.categorical(logits)
        return actions, ops.take_last(logits, actions) - 1.0


class FloatActor(Actor):
    @graph_fn(returns=2)
    def _choose(self, logits):
        noise = ops.random.normal(logits.shape[:1])
        actions = logits[..., 0] + 0.5 * noise
        return actions, -0.5 * noise * noise - self._log_deviation() - 0.5 * math.log(2.0 * math.pi)

    def _log_deviation(self):
        return math.log(0.5)


class FloatActorWithSign(FloatActor):
    def _log_deviation(self):
        return -math.log(0.5)


class FloatActorThatClips(FloatActor):
    @graph_fn(returns=2)
    def _choose(self, logits):
        noise = ops.random.normal(logits.shape[:1])
        reported = -0.5 * noise * noise - math.log(0.5) - 0.5 * math.log(2.0 * math.pi)
        return ops.clip(logits[..., 0] + 0.5 * noise, -1.0, 1.0), reported


class ActorWithValue(Actor):
    """What it returns besides is no log-probability."""

    @graph_fn(returns=2)
    def _choose(self, logits):
        return ops.random.categorical(logits), ops.sum(logits, axis=-1)


OBSERVATIONS = {"observations": FloatBox(shape=(3,), add_batch_rank=True)}
ACTORS = [
    (ActorWithTwoDraws, Cause.WRONG_FREQUENCIES),
    (ActorWithWarmth, Cause.WRONG_FREQUENCIES),
    (ActorWithLogits, Cause.NOT_A_DENSITY),
    (FloatActorWithSign, Cause.NOT_A_DENSITY),
    (FloatActorThatClips, Cause.NOT_A_DENSITY),
]


@pytest.mark.parametrize(("component", "cause"), ACTORS, ids=lambda x: getattr(x, "__name__", ""))
def test_log_probabilities_that_come_with_actions_are_those_of_the_actions(component, cause):
    assert "actor._choose" in _finding(check(component, OBSERVATIONS), cause).where


# -- masks and shares ----------------------------------------------------------------------------------------------


class Masked(Component):
    def __init__(self):
        super().__init__("masked")

    @graph_fn
    def act(self, logits, mask):
        return ops.random.categorical(ops.where(mask, logits, -1e9))


class MaskForgotten(Masked):
    @graph_fn
    def act(self, logits, mask):
        return ops.random.categorical(ops.where(mask, logits, logits - 1.0))


class MaskInverted(Masked):
    @graph_fn
    def act(self, logits, mask):
        return ops.random.categorical(ops.where(mask, -1e9, logits))


class MaskWithZeros(Masked):
    """Zero is no small logit."""

    @graph_fn
    def act(self, logits, mask):
        return ops.argmax(logits * ops.astype(mask, "float32"), axis=-1)


@pytest.mark.parametrize("component", [MaskForgotten, MaskInverted, MaskWithZeros])
def test_a_mask_that_does_not_hold_is_found(component):
    finding = _finding(check(component, MASKED), Cause.MASK_IGNORED)
    assert "masked.act" in finding.where
    assert "'mask'" in finding.seen


class Shares(Component):
    def __init__(self):
        super().__init__("shares")

    @graph_fn
    def probabilities(self, logits):
        return ops.softmax(logits)


class SharesByRow(Shares):
    @graph_fn
    def probabilities(self, logits):
        return ops.exp(logits) / ops.sum(ops.exp(ops.abs(logits)), axis=-1, keepdims=True)


def test_shares_that_do_not_add_up_are_found():
    assert "shares.probabilities" in _finding(check(SharesByRow, SHARES), Cause.NOT_A_DENSITY).where


SHARES = {"logits": FloatBox(shape=(4,), add_batch_rank=True)}
SOUND = [
    (Categories, LOGITS),
    (Normal, NORMAL),
    (Summed, NORMAL),
    (Squashed, SQUASHED),
    (Actor, OBSERVATIONS),
    (FloatActor, OBSERVATIONS),
    (ActorWithValue, OBSERVATIONS),
    (Masked, MASKED),
    (Shares, SHARES),
]


@pytest.mark.parametrize(("component", "spaces"), SOUND, ids=lambda x: getattr(x, "__name__", ""))
def test_right_distributions_pass(component, spaces):
    report = check(component, spaces)
    assert not {f.cause for f in report} & DISTRIBUTION_CAUSES, str(report)
    assert "probabilities" in {done.check for done in report.done}


def test_the_unit_of_a_density_is_declared():
    described = Descriptor("halves", InAnotherUnit, InAnotherUnit, SQUASHED, density_unit=2.0)
    assert Cause.NOT_A_DENSITY not in {finding.cause for finding in check(described)}
    wrong = Descriptor("wrong", Squashed, Squashed, SQUASHED, density_unit=2.0)
    assert Cause.NOT_A_DENSITY in {finding.cause for finding in check(wrong)}


DISTRIBUTION_CAUSES = {
    Cause.WRONG_FREQUENCIES,
    Cause.NOT_A_DENSITY,
    Cause.WRONG_ENTROPY,
    Cause.ENTROPY_SIGN,
    Cause.ACTION_OUTSIDE,
    Cause.MASK_IGNORED,
}


def _finding(report, cause):
    assert cause in {finding.cause for finding in report}, str(report)
    return next(finding for finding in report if finding.cause is cause)

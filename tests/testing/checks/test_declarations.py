"""Components that declare what they do not do, beside those that need what they declare."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}
STEPS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)}
REWARDS = {
    "rewards": FloatBox(add_batch_rank=True, add_time_rank=True),
    "ended": BoolBox(add_batch_rank=True, add_time_rank=True),
}


class RowwiseWithDeclaration(Component):
    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=-1, keepdims=True)


class MeanLossWithDeclaration(Component):
    @api
    def loss(self, inputs):
        return self._mean(inputs)

    @graph_fn(mixes_batch=True)
    def _mean(self, inputs):
        return ops.mean(ops.square(inputs))


class PastWithDeclaration(Component):
    @graph_fn(looks_ahead=True)
    def call(self, inputs):
        return ops.cumulative_sum(inputs, axis=0)


class StepwiseWithDeclaration(Component):
    @api
    def call(self, inputs):
        return self._square(inputs)

    @graph_fn(looks_ahead=True)
    def _square(self, inputs):
        return inputs * inputs


@pytest.mark.parametrize(
    ("component", "spaces", "place"),
    [
        (RowwiseWithDeclaration, ROWS, "rowwise-with-declaration.call"),
        (MeanLossWithDeclaration, ROWS, "mean-loss-with-declaration._mean"),
        (PastWithDeclaration, STEPS, "past-with-declaration.call"),
        (StepwiseWithDeclaration, STEPS, "stepwise-with-declaration._square"),
    ],
)
def test_a_declaration_that_is_not_needed_is_found(component, spaces, place):
    report = check(component, spaces)
    finding = next((f for f in report if f.cause is Cause.UNNEEDED_DECLARATION), None)
    assert finding is not None, str(report)
    assert place in finding.where
    assert "test_declarations.py:" in finding.where


class Centred(Component):
    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0)


class MeanForAll(Component):
    """The mean has no rows; it is declared where it is made, and used for each row."""

    @api
    def call(self, inputs):
        return self._minus(inputs, self._mean(inputs))

    @graph_fn(mixes_batch=True)
    def _mean(self, inputs):
        return ops.mean(inputs, axis=0)

    @graph_fn
    def _minus(self, inputs, mean):
        return inputs - mean


class DeviationAsLoss(Component):
    """Replicas would compute another number."""

    @graph_fn(mixes_batch=True)
    def loss(self, inputs):
        return ops.mean(ops.std(inputs, axis=0))


class Pairs(Component):
    """The build refuses an array with the batch axis twice."""

    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        first = inputs[:, 0]
        far = ops.any(ops.abs(first[:, None] - first[None, :]) > 1e9, axis=-1)
        return ops.where(far, 0.0, first)


class SharedNoise(Component):
    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        return inputs + ops.random.normal(inputs.shape[1:])


class Returns(Component):
    """They look ahead only where no episode ends."""

    @graph_fn(looks_ahead=True)
    def call(self, rewards, ended):
        after = ops.concat([rewards[1:], ops.zeros_like(rewards[:1])], axis=0)
        return rewards + ops.where(ended, 0.0, after)


@pytest.mark.parametrize(
    ("component", "spaces"),
    [
        (Centred, ROWS),
        (MeanForAll, ROWS),
        (DeviationAsLoss, ROWS),
        (Pairs, ROWS),
        (SharedNoise, ROWS),
        (Returns, REWARDS),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_declaration_that_is_needed_is_none(component, spaces):
    report = check(component, spaces)
    assert Cause.UNNEEDED_DECLARATION not in {finding.cause for finding in report}, str(report)


def test_the_check_leaves_the_declarations_as_they_are():
    check(RowwiseWithDeclaration, ROWS)
    assert vars(RowwiseWithDeclaration)["call"].mixes_batch


class LossOfNormalizedAdvantages(Component):
    """Rows met on purpose before `_loss`, so all of them move there, whatever `_loss` does."""

    @api
    def loss(self, log_probs, advantages):
        return self._loss(log_probs, self._normalized(advantages))

    @graph_fn(mixes_batch=True)
    def _normalized(self, advantages):
        return (advantages - ops.mean(advantages)) / (ops.std(advantages) + 1e-6)

    @graph_fn
    def _loss(self, log_probs, advantages):
        return -log_probs * advantages


class LossThatCentresThemAgain(LossOfNormalizedAdvantages):
    @graph_fn
    def _loss(self, log_probs, advantages):
        return -log_probs * (advantages - ops.max(advantages, axis=0))


def test_rows_that_meet_behind_those_that_meet_on_purpose_are_found():
    spaces = {name: FloatBox(add_batch_rank=True) for name in ("log_probs", "advantages")}
    assert check(LossOfNormalizedAdvantages, spaces).ok
    report = check(LossThatCentresThemAgain, spaces)
    assert [(finding.cause, "_loss" in finding.where) for finding in report] == [(Cause.ROWS_MEET, True)]

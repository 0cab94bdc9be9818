"""Calls that are told not to train, or not to explore."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}


class Centred(Component):
    """A running mean, which training moves."""

    def create_variables(self, inputs):
        self.mean = self.variable("mean", inputs.shape, 0.0, trainable=False)
        self.calls = self.variable("calls", (), 0, trainable=False, dtype="int32")

    @api(static=("training",))
    def call(self, inputs, training=True):
        if self.moves(training):
            self._update(inputs)
        return self._centred(inputs)

    def moves(self, training):
        return training

    @graph_fn(mixes_batch=True, differentiable=False)
    def _update(self, inputs):
        self.mean.assign(0.9 * self.mean.value + 0.1 * ops.mean(inputs, 0))

    @graph_fn
    def _centred(self, inputs):
        self.calls.assign(self.calls.value + 1)
        return inputs - self.mean.value


class CentredAlways(Centred):
    def moves(self, training):
        return True


class Noisy(Component):
    @api(static=("deterministic",))
    def act(self, inputs, deterministic=False):
        return self._noisy(inputs) if self.is_noisy(deterministic) else inputs

    def is_noisy(self, deterministic):
        return not deterministic

    @graph_fn
    def _noisy(self, inputs):
        return inputs + ops.random.normal(inputs.shape)


class NoisyAlways(Noisy):
    def is_noisy(self, deterministic):
        return True


class NoisyByArray(Component):
    """The flag is an input."""

    @graph_fn
    def act(self, inputs, explore):
        return inputs + ops.where(ops.expand_dims(self.counts(explore), -1), ops.random.normal(inputs.shape), 0.0)

    def counts(self, explore):
        return explore


class NoisyByArrayAlways(NoisyByArray):
    def counts(self, explore):
        return ops.logical_or(explore, True)


FLAGGED = {**ROWS, "explore": BoolBox(add_batch_rank=True)}


@pytest.mark.parametrize(("component", "spaces"), [(Centred, ROWS), (Noisy, ROWS), (NoisyByArray, FLAGGED)])
def test_what_keeps_to_its_flag_passes(component, spaces):
    report = check(component, spaces)
    assert report.ok, str(report)


def test_statistics_that_move_in_evaluation_are_found_though_the_call_is_made_for_training():
    (finding,) = (f for f in check(CentredAlways, ROWS) if f.cause is Cause.EVALUATION_LEARNS)
    assert finding.where.startswith("centred-always._update, checks/test_evaluation.py:")
    assert "training=False, and variable centred-always/mean moved" in finding.seen


@pytest.mark.parametrize(
    ("component", "spaces", "told"),
    [(NoisyAlways, ROWS, "deterministic=True"), (NoisyByArrayAlways, FLAGGED, "explore=False")],
)
def test_noise_where_nothing_is_to_be_explored_is_found(component, spaces, told):
    (finding,) = (f for f in check(component, spaces) if f.cause is Cause.EVALUATION_DRAWS)
    assert told in finding.seen

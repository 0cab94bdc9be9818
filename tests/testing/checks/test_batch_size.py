"""The check of the number of rows, on components with one fault each."""

import pytest

from rlweave import graph, ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}
STEPS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)}


class MeanOverTheBatch(Component):
    @graph_fn
    def call(self, inputs):
        return ops.sum(inputs, axis=-1) / inputs.shape[0]


class ScaledByTheBatch(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * ops.sum(ops.ones_like(inputs[:, 0]))


class SizeAdded(Component):
    @graph_fn
    def call(self, inputs):
        return inputs + 0.1 * inputs.shape[0]


class BehindStopGradient(Component):
    @api
    def call(self, inputs):
        return graph.stop_gradient(self._mean(inputs))

    @graph_fn
    def _mean(self, inputs):
        return ops.sum(inputs, axis=-1) / inputs.shape[0]


FAULTS = [MeanOverTheBatch, ScaledByTheBatch, SizeAdded, BehindStopGradient]


class MeanOverFeatures(Component):
    """Sound."""

    @graph_fn
    def call(self, inputs):
        return ops.sum(inputs, axis=-1) / inputs.shape[-1]


class Centred(Component):
    """Sound: rows meet on purpose."""

    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0)


@pytest.mark.parametrize("component", FAULTS, ids=lambda x: x.__name__)
def test_a_batch_size_that_counts_is_found(component):
    report = check(component, ROWS)
    found = [finding for finding in report if finding.cause is Cause.BATCH_SIZE_COUNTS]
    assert found, str(report)
    assert "checks/test_batch_size.py:" in found[0].where


@pytest.mark.parametrize("component", [MeanOverFeatures, Centred], ids=lambda x: x.__name__)
def test_a_batch_size_that_does_not_count_has_no_finding(component):
    report = check(component, ROWS)
    assert report.ok, str(report)


class DividedByTheBatch(Component):
    @api
    def call(self, inputs):
        return self._divided(self._square(inputs))

    @graph_fn
    def _square(self, inputs):
        return inputs * inputs

    @graph_fn
    def _divided(self, inputs):
        return inputs / inputs.shape[0]


class WeightsByTheBatch(Component):
    @graph_fn
    def call(self, inputs):
        return ops.sum(inputs, axis=-1) * (1.0 if inputs.shape[0] > 2 else 0.5)


class DividedByAllSteps(Component):
    @graph_fn
    def call(self, inputs):
        return inputs / (inputs.shape[0] * inputs.shape[1])


@pytest.mark.parametrize(
    ("component", "spaces", "place"),
    [
        (DividedByTheBatch, ROWS, "divided-by-the-batch._divided"),
        (WeightsByTheBatch, ROWS, "weights-by-the-batch.call"),
        (DividedByAllSteps, STEPS, "divided-by-all-steps.call"),
    ],
)
def test_a_batch_size_that_counts_is_found_where_it_does(component, spaces, place):
    report = check(component, spaces)
    finding = next((f for f in report if f.cause is Cause.BATCH_SIZE_COUNTS), None)
    assert finding is not None, str(report)
    assert place in finding.where
    assert "test_batch_size.py:" in finding.where


class FailsForOneRow(Component):
    @graph_fn(host=True, spaces="_spaces")
    def call(self, inputs):
        if inputs.shape[0] < 2:
            raise ValueError("at least two rows")
        return 2.0 * inputs

    def _spaces(self, inputs):
        return inputs


class FailsWithoutRows(Component):
    @graph_fn
    def call(self, inputs):
        return ops.reshape(ops.reshape(inputs, (inputs.shape[0], -1)), inputs.shape)


@pytest.mark.parametrize(
    ("component", "rows"), [(FailsForOneRow, "a batch of 1 row"), (FailsWithoutRows, "a batch without rows")]
)
def test_a_batch_size_that_fails_is_found(component, rows):
    report = check(component, ROWS)
    assert any(f.cause is Cause.CANNOT_RUN and rows in f.seen for f in report), str(report)


class MeanLoss(Component):
    """A mean is made of all rows, and each counts less among more."""

    @graph_fn
    def loss(self, inputs):
        return ops.mean(ops.square(inputs))


class Weighted(Component):
    """Weights are divided by their largest, and declared."""

    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        sizes = 1.0 + ops.sigmoid(inputs)
        return sizes / ops.max(sizes)


class Rowwise(Component):
    @graph_fn
    def call(self, inputs):
        return ops.softmax(inputs)


@pytest.mark.parametrize("component", [MeanLoss, Weighted, Rowwise])
def test_sound_components_pass(component):
    report = check(component, ROWS)
    assert report.ok, str(report)

"""The check of the number of rows, on components with one fault each."""

import pytest

from rlweave import graph, ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}


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

"""Checks of sample weights, on losses with one fault each."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, check

ROWS = FloatBox(add_batch_rank=True)
SPACES = {"values": ROWS, "targets": ROWS, "weights": FloatBox(0.1, 1.0, add_batch_rank=True)}


class Loss(Component):
    """Sound; faults are in sub-classes."""

    @api
    def loss(self, values, targets, weights):
        return self._mean(self._errors(values, targets), weights)

    @graph_fn
    def _errors(self, values, targets):
        return values - ops.stop_gradient(targets)

    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(weights * ops.square(errors))


class BeforeTheSquare(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(ops.square(weights * errors))


class BeforeHuber(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        size = ops.abs(weights * errors)
        return ops.mean(ops.where(size < 1.0, 0.5 * ops.square(size), size - 0.5))


class Roots(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(ops.sqrt(weights) * ops.square(errors))


class WeightOfAnotherRow(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(weights * ops.flip(ops.square(errors), axis=0))


class MeanTimesMean(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(weights) * ops.mean(ops.square(errors))


class DividedByTheirSum(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.sum(weights * ops.square(errors)) / ops.sum(weights)


class DividedByTheLargest(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(weights / ops.max(weights) * ops.square(errors))


class WithAPenalty(Loss):
    @graph_fn
    def _mean(self, errors, weights):
        return ops.mean(weights * ops.square(errors)) + 0.1 * ops.mean(ops.square(errors))


@pytest.mark.parametrize(
    "component", [BeforeTheSquare, BeforeHuber, Roots, WeightOfAnotherRow, MeanTimesMean], ids=lambda x: x.__name__
)
def test_a_weight_at_the_wrong_place_is_found(component):
    report = check(component, SPACES)
    found = [finding for finding in report if finding.cause is Cause.WEIGHT_NOT_LINEAR]
    assert found, str(report)
    assert "._mean" in found[0].where
    assert "test_weights.py:" in found[0].where


@pytest.mark.parametrize(
    "component", [Loss, DividedByTheirSum, DividedByTheLargest, WithAPenalty], ids=lambda x: x.__name__
)
def test_a_weight_at_the_right_place_has_no_finding(component):
    report = check(component, SPACES)
    assert report.ok, str(report)

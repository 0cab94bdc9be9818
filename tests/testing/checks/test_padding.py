"""Checks of padding, on losses and statistics with one fault each."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, check

ROWS = FloatBox(add_batch_rank=True)
STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)
IN_ROWS = {"errors": ROWS, "scale": ROWS, "mask": BoolBox(add_batch_rank=True)}
IN_STEPS = {"errors": STEPS, "scale": STEPS, "mask": BoolBox(add_batch_rank=True, add_time_rank=True)}


def masked_mean(x, mask):
    return ops.sum(ops.where(mask, x, 0.0)) / ops.maximum(ops.sum(ops.astype(mask, "float32")), 1.0)


class Loss(Component):
    """Sound; faults are in sub-classes."""

    @api
    def loss(self, errors, scale, mask):
        return self._mean(self._squares(errors, scale), mask)

    @graph_fn
    def _squares(self, errors, scale):
        return ops.square(errors) + scale

    @graph_fn
    def _mean(self, losses, mask):
        return masked_mean(losses, mask)


class MeanOverAll(Loss):
    @graph_fn
    def _mean(self, losses, mask):
        return ops.mean(ops.where(mask, losses, 0.0))


class MaskForgotten(Loss):
    @graph_fn
    def _mean(self, losses, mask):
        return ops.mean(losses) + 0.0 * ops.mean(ops.astype(mask, "float32"))


class DividedByNothing(Loss):
    @graph_fn
    def _mean(self, losses, mask):
        return ops.sum(ops.where(mask, losses, 0.0)) / ops.sum(ops.astype(mask, "float32"))


class CentredByPadding(Loss):
    """The mean is masked, what is subtracted before is not."""

    @api
    def loss(self, errors, scale, mask):
        return self._mean(self._squares(self._centred(errors), scale), mask)

    @graph_fn(mixes_batch=True)
    def _centred(self, errors):
        return errors - ops.mean(errors)


class CentredByWhatCounts(CentredByPadding):
    @api
    def loss(self, errors, scale, mask):
        return self._mean(self._squares(self._centred(errors, mask), scale), mask)

    @graph_fn(mixes_batch=True)
    def _centred(self, errors, mask):
        return errors - masked_mean(errors, mask)


class Statistics(Component):
    """Sound: counts what counts."""

    def create_variables(self, errors):
        self.total = self.variable("total", (2,), 0.0, trainable=False)

    @graph_fn(differentiable=False)
    def update(self, errors, mask):
        kept = ops.where(mask, errors, 0.0)
        count = self.count(mask)
        self.total.assign(self.total.value + ops.stack([ops.sum(kept), count]))

    def count(self, mask):
        return ops.sum(ops.astype(mask, "float32"))

    @graph_fn
    def mean(self):
        return self.total.value[0] / ops.maximum(self.total.value[1], 1.0)


class CountsPadding(Statistics):
    def count(self, mask):
        return ops.sum(ops.ones_like(ops.astype(mask, "float32")))


FAULTS = [
    (MeanOverAll, Cause.PADDING_COUNTS, "._mean"),
    (MaskForgotten, Cause.PADDING_COUNTS, "._mean"),
    (CentredByPadding, Cause.PADDING_COUNTS, "._centred"),
    (DividedByNothing, Cause.NOT_FINITE, "._mean"),
]


@pytest.mark.parametrize("spaces", [IN_ROWS, IN_STEPS], ids=["rows", "steps"])
@pytest.mark.parametrize(("component", "cause", "place"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_padding_that_counts_is_found(component, cause, place, spaces):
    report = check(component, spaces)
    found = [finding for finding in report if finding.check == "padding"]
    assert cause in {finding.cause for finding in found}, str(report)
    assert place in found[0].where
    assert "test_padding.py:" in found[0].where


def test_padding_in_statistics_is_found():
    found = [finding for finding in check(CountsPadding, IN_ROWS) if finding.check == "padding"]
    assert [finding.cause for finding in found] == [Cause.PADDING_COUNTS]
    assert "counts-padding/total" in found[0].seen
    assert ".update" in found[0].where


@pytest.mark.parametrize("spaces", [IN_ROWS, IN_STEPS], ids=["rows", "steps"])
@pytest.mark.parametrize("component", [Loss, CentredByWhatCounts, Statistics], ids=lambda x: x.__name__)
def test_padding_that_does_not_count_has_no_finding(component, spaces):
    report = check(component, spaces)
    assert report.ok, str(report)


def test_a_mask_of_actions_is_no_padding():
    class Masked(Component):
        @graph_fn
        def call(self, logits, mask):
            return ops.where(mask, logits, -1e9)

    spaces = {"logits": FloatBox(shape=(3,), add_batch_rank=True), "mask": BoolBox(shape=(3,), add_batch_rank=True)}
    report = check(Masked, spaces)
    assert report.ok, str(report)

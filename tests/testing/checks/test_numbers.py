"""Edges of integers."""

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import Cause, check


class MeanReward(Component):
    @graph_fn
    def call(self, total, steps):
        return total / ops.astype(steps, "float32")


def spaces(steps):
    return {"total": FloatBox(add_batch_rank=True), "steps": steps}


def test_a_count_that_may_be_zero_is_tried():
    report = check(MeanReward, spaces(IntBox(1_000, add_batch_rank=True)))
    assert [finding.cause for finding in report] == [Cause.NOT_FINITE]
    assert "lower bounds" in str(report)
    assert check(MeanReward, spaces(IntBox(1, 1_000, add_batch_rank=True))).ok

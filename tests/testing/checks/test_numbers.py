"""Edges of integers, and integers that pass through floats."""

import pytest

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


SPACES = {"steps": IntBox(0, 2**31 - 1, add_batch_rank=True)}


class Halved(Component):
    @graph_fn
    def call(self, steps):
        return self.halved(steps)

    def halved(self, steps):
        return steps // 2


class HalvedInFloats(Halved):
    def halved(self, steps):
        return ops.astype(ops.floor(ops.astype(steps, "float32") / 2.0), "int32")


class RoundedInFloats(Halved):
    def halved(self, steps):
        return ops.astype(ops.astype(steps, "float32"), "int32") + 1


class Clipped(Halved):
    """Large ones are all the same, on purpose."""

    def halved(self, steps):
        return ops.minimum(steps, 1000)


class Share(Halved):
    """A number between 0 and 1, for which digits do not matter."""

    def halved(self, steps):
        return ops.minimum(ops.astype(steps, "float32") / 1e6, 1.0)


class Kept(Component):
    """In a variable of integers."""

    def create_variables(self, steps):
        self.last = self.variable("last", (), 0, trainable=False, dtype="int32")

    @graph_fn(mixes_batch=True)
    def call(self, steps):
        self.last.assign(self.kept(ops.max(steps)))
        return self.last.value

    def kept(self, step):
        return step


class KeptInFloats(Kept):
    def kept(self, step):
        return ops.astype(ops.astype(step, "float32"), "int32")


@pytest.mark.parametrize("component", [Halved, Clipped, Share, Kept])
def test_what_keeps_all_digits_or_needs_none_passes(component):
    report = check(component, SPACES)
    assert not any(finding.cause is Cause.INTEGERS_ROUNDED for finding in report), str(report)


@pytest.mark.parametrize("component", [RoundedInFloats, KeptInFloats])
def test_rounding_in_floats_is_found(component):
    (finding,) = (f for f in check(component, SPACES) if f.cause is Cause.INTEGERS_ROUNDED)
    assert "'steps' was 16777216 to 16777231, one after another" in finding.seen
    assert ".call, checks/test_numbers.py:" in finding.where


def test_bounds_below_which_floats_have_all_integers_are_enough():
    report = check(RoundedInFloats, {"steps": IntBox(0, 2**24, add_batch_rank=True)})
    assert report.ok, str(report)

"""Checks of declared scale laws, and of intentions."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, Descriptor, ScaleLaw, check

ROWS = FloatBox(add_batch_rank=True)
STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)


class Normalized(Component):
    """Sound; faults are in sub-classes."""

    epsilon = 1e-8

    @graph_fn(mixes_batch=True)
    def call(self, advantages):
        return (advantages - ops.mean(advantages)) / (ops.std(advantages) + self.epsilon)


class LargeEpsilon(Normalized):
    epsilon = 1e-3


class OnlyScaled(Normalized):
    @graph_fn(mixes_batch=True)
    def call(self, advantages):
        return advantages / (ops.std(advantages) + 1e-8)


class Clipped(Normalized):
    @graph_fn(mixes_batch=True)
    def call(self, advantages):
        x = ops.clip(advantages, -1.0, 1.0)
        return (x - ops.mean(x)) / (ops.std(x) + 1e-8)


class Constant(Component):
    @graph_fn
    def call(self, advantages):
        return ops.zeros_like(advantages)


LAW = ScaleLaw("call", ("advantages",), shift=True)


def described(component, *laws, **options):
    return Descriptor(component.__name__, component, component, {"advantages": ROWS}, scale_laws=laws, **options)


@pytest.mark.parametrize("component", [LargeEpsilon, OnlyScaled, Clipped], ids=lambda x: x.__name__)
def test_a_broken_scale_law_is_found(component):
    found = list(check(described(component, LAW)))
    assert [finding.cause for finding in found] == [Cause.SCALE_MATTERS]
    assert "test_scale.py:" in found[0].where


def test_a_law_that_says_nothing_is_found():
    causes = {finding.cause for finding in check(described(Constant, LAW))}
    assert Cause.UNNEEDED_DECLARATION in causes


def test_a_law_of_what_there_is_not_is_found():
    report = check(described(Normalized, ScaleLaw("call", ("rewards",))))
    assert "a scale law names what the component does not have" in str(report)


@pytest.mark.parametrize(
    ("component", "law"), [(Normalized, LAW), (OnlyScaled, ScaleLaw("call", ("advantages",)))], ids=["both", "scale"]
)
def test_a_law_that_holds_has_no_finding(component, law):
    report = check(described(component, law))
    assert report.ok, str(report)


class GoesOn(Component):
    """The task goes on over the ends of episodes, on purpose."""

    @graph_fn
    def call(self, rewards, next_values, terminated):
        return rewards + 0.9 * next_values - 0.1 * ops.astype(terminated, "float32")


GOES_ON = {"rewards": STEPS, "next_values": STEPS, "terminated": BoolBox(add_batch_rank=True, add_time_rank=True)}


def test_what_is_intended_is_no_finding():
    report = check(
        Descriptor("goes-on", GoesOn, GoesOn, GOES_ON, intended=(Cause.TERMINATION_IGNORED,)),
    )
    assert report.ok, str(report)
    assert not check(GoesOn, GOES_ON).ok


def test_an_intention_that_is_not_carried_out_is_found():
    report = check(described(Normalized, intended=(Cause.CROSSES_EPISODES,)))
    assert [finding.cause for finding in report] == [Cause.UNNEEDED_DECLARATION]

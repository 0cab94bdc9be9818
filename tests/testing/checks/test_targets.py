"""Target networks, the wrong way round; and numbers that cannot be negative."""

import pytest

from rlweave import ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, Descriptor, check

ROWS = {"observations": FloatBox(shape=(3,), add_batch_rank=True)}


class WithTarget(Component):
    def __init__(self):
        super().__init__("with-target")
        self.online = Dense(2, scope="online")
        self.target = self.online.copy(scope="target", trainable=False)

    @api
    def call(self, observations):
        return self.online.call(observations)

    @api
    def slow(self, observations):
        return self.target.call(observations)

    @api
    def update_target(self):
        self.target.sync(self.online, 0.1)


class Both(WithTarget):
    """Each takes a part of the other."""

    @api
    def update_target(self):
        self.target.sync(self.online, 0.1)
        self.online.sync(self.target, 0.5)


def described(component):
    return Descriptor("target", component, component, ROWS, calls=("call", "slow", "update_target", "call", "slow"))


def test_a_target_that_follows_passes():
    report = check(described(WithTarget))
    assert report.ok, str(report)


def test_a_network_that_follows_its_target_is_found():
    (finding,) = (f for f in check(described(Both)) if f.cause is Cause.WRONG_WEIGHTS_MOVE)
    assert finding.where.startswith("with-target.update_target, checks/test_targets.py:")
    assert "online/kernel, which learns, moved" in finding.seen


class Spread(Component):
    @graph_fn(returns=1)
    def call(self, observations):
        return {"std": self.made(observations)}

    def made(self, observations):
        return ops.softplus(observations)


class SpreadBelowZero(Spread):
    def made(self, observations):
        return observations * 2.0


@pytest.mark.parametrize(("component", "causes"), [(Spread, set()), (SpreadBelowZero, {Cause.NEGATIVE})])
def test_a_deviation_below_zero_is_found(component, causes):
    assert {finding.cause for finding in check(component, ROWS)} == causes

"""Sums of rewards."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, Descriptor, check


def spaces(bound=None):
    low = None if bound is None else -bound
    return {
        "rewards": FloatBox(low, bound, add_batch_rank=True, add_time_rank=True),
        "terminated": BoolBox(add_batch_rank=True, add_time_rank=True),
        "state": FloatBox(add_batch_rank=True),
    }


class Totals(Component):
    @graph_fn(returns=2)
    def call(self, rewards, terminated, state):
        def step(total, at):
            reward, ended = at
            total = self.added(total, reward)
            return ops.where(ended, 0.0, total), total

        last, totals = ops.scan(step, state, (rewards, terminated))
        return totals, last

    def added(self, total, reward):
        return total + reward


class TotalsOfClipped(Totals):
    def added(self, total, reward):
        return total + ops.clip(reward, -1.0, 1.0)


class TotalsWithoutLosses(Totals):
    """Only one side is clipped."""

    def added(self, total, reward):
        return total + ops.maximum(reward, -1.0)


class Successes(Totals):
    """Counts rewards, and does not add them up."""

    def added(self, total, reward):
        return total + ops.astype(reward > 0.0, "float32")


class Features(Totals):
    """A layer that sees rewards."""

    def added(self, total, reward):
        return ops.tanh(total + reward)


@pytest.mark.parametrize("component", [Totals, Successes, Features])
def test_sums_and_what_is_none_pass(component):
    report = check(component, spaces())
    assert not any(f.cause is Cause.REWARD_IGNORED for f in report), str(report)


@pytest.mark.parametrize(
    ("component", "size"), [(TotalsOfClipped, "100 and of 200"), (TotalsWithoutLosses, "-100 and")]
)
def test_sums_of_clipped_rewards_are_found(component, size):
    finding = next(f for f in check(component, spaces()) if f.cause is Cause.REWARD_IGNORED)
    assert size in finding.seen
    assert ".call, checks/test_rewards.py:" in finding.where


def test_rewards_that_are_clipped_already_pass():
    assert check(TotalsOfClipped, spaces(1.0)).ok


def test_sums_of_clipped_rewards_may_be_meant():
    name = TotalsOfClipped.__name__
    assert check(Descriptor(name, TotalsOfClipped, TotalsOfClipped, spaces(), intended=(Cause.REWARD_IGNORED,))).ok

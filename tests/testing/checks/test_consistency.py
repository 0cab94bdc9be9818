"""The check of returns of exact values, on returns with one fault each that no other check can see."""

import pytest

from rlweave import ops
from rlweave.components.returns import discounted_sums
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, check

STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)
FLAGS = BoolBox(add_batch_rank=True, add_time_rank=True)
SPACES = {
    "rewards": STEPS,
    "values": STEPS,
    "next_values": STEPS,
    "last_values": FloatBox(add_batch_rank=True),
    "terminated": FLAGS,
    "truncated": FLAGS,
    "discounts": FloatBox(0.5, 1.0, add_batch_rank=True, add_time_rank=True),
}
DISCOUNT = 0.9


def later(x, last):
    return ops.concat([x[1:], last], axis=0)


class NStep(Component):
    """Two steps; sound. Faults are in sub-classes."""

    @graph_fn(looks_ahead=True)
    def call(self, rewards, next_values, terminated, truncated):
        bootstrap = ops.where(terminated, 0.0, next_values)
        ended = ops.logical_or(terminated, truncated)
        stops = later(ops.concat([ended[:1], ended[:-1]], axis=0), ops.ones_like(ended[-1:]))
        return rewards + DISCOUNT * ops.where(stops, bootstrap, self.following(rewards, bootstrap))

    def following(self, rewards, bootstrap):
        return later(rewards + DISCOUNT * bootstrap, bootstrap[-1:])


class BootstrapDiscountedOnce(NStep):
    def following(self, rewards, bootstrap):
        return later(rewards + bootstrap, bootstrap[-1:])


class RewardsDiscountedTwice(NStep):
    def following(self, rewards, bootstrap):
        return later(DISCOUNT * rewards + DISCOUNT * bootstrap, bootstrap[-1:])


class BootstrapOnTop(NStep):
    """Each reward is bootstrapped, not only the last one of a window."""

    def following(self, rewards, bootstrap):
        return later(rewards + DISCOUNT * bootstrap, bootstrap[-1:]) + bootstrap


class Advantages(Component):
    """Sound. Faults are in sub-classes."""

    @graph_fn(looks_ahead=True, returns=2)
    def estimate(self, rewards, values, last_values, terminated):
        following = ops.where(terminated, 0.0, later(values, ops.expand_dims(last_values, 0)))
        errors = self.errors(rewards, values, following)
        sums = discounted_sums(errors, ops.where(terminated, 0.0, ops.full_like(errors, 0.8)))
        return sums, self.targets(sums, values, following)

    def errors(self, rewards, values, following):
        return rewards + DISCOUNT * following - values

    def targets(self, sums, values, following):
        return sums + values


class TargetsOfTheNextState(Advantages):
    def targets(self, sums, values, following):
        return sums + following + 0.0 * values


class ValuesDiscounted(Advantages):
    def errors(self, rewards, values, following):
        return rewards + DISCOUNT * (following - values)


class Discounted(Component):
    """In the manner of RLax; sound."""

    @graph_fn(looks_ahead=True)
    def call(self, rewards, discounts, next_values):
        returns = rewards + discounts * next_values
        for _ in range(rewards.shape[0] - 1):
            returns = rewards + discounts * (0.5 * next_values + 0.5 * later(returns, next_values[-1:]))
        return returns


class MixtureOfMoreThanOne(Discounted):
    @graph_fn(looks_ahead=True)
    def call(self, rewards, discounts, next_values):
        returns = rewards + discounts * next_values
        for _ in range(rewards.shape[0] - 1):
            returns = rewards + discounts * (0.5 * next_values + 0.6 * later(returns, next_values[-1:]))
        return returns


@pytest.mark.parametrize(
    "component",
    [
        BootstrapDiscountedOnce,
        RewardsDiscountedTwice,
        BootstrapOnTop,
        TargetsOfTheNextState,
        ValuesDiscounted,
        MixtureOfMoreThanOne,
    ],
    ids=lambda x: x.__name__,
)
def test_returns_that_are_not_the_values_are_found(component):
    report = check(component, SPACES)
    assert [finding.cause for finding in report] == [Cause.INCONSISTENT_RETURNS], str(report)
    assert "test_consistency.py:" in report.findings[0].where


@pytest.mark.parametrize("component", [NStep, Advantages, Discounted], ids=lambda x: x.__name__)
def test_returns_that_are_the_values_have_no_finding(component):
    report = check(component, SPACES)
    assert report.ok, str(report)

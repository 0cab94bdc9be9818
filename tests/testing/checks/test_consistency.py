"""Returns of exact values with one fault each that no other check can see, and sums of rewards."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, Descriptor, check

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
        sums = ops.discounted_sums(errors, ops.where(terminated, 0.0, ops.full_like(errors, 0.8)))
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
    assert ".call, checks/test_consistency.py:" in finding.where


def test_rewards_that_are_clipped_already_pass():
    assert check(TotalsOfClipped, spaces(1.0)).ok


def test_sums_of_clipped_rewards_may_be_meant():
    name = TotalsOfClipped.__name__
    assert check(Descriptor(name, TotalsOfClipped, TotalsOfClipped, spaces(), intended=(Cause.REWARD_IGNORED,))).ok

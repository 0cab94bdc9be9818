"""Checks of what carries a state from one fragment to the next, on recurrent layers with one fault each."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, Descriptor, check

SPACES = {
    "inputs": FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=True),
    "state": FloatBox(shape=(2,), add_batch_rank=True),
    "episode_start": BoolBox(add_batch_rank=True, add_time_rank=True),
}


class Recurrent(Component):
    """Sound; faults are in sub-classes."""

    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        outputs = []
        for t in range(inputs.shape[0]):
            before = ops.where(ops.expand_dims(episode_start[t], -1), 0.0, state)
            state = ops.tanh(inputs[t] + 0.5 * before)
            outputs.append(state)
        return ops.stack(outputs, axis=0), self.handed_on(before, state)

    def handed_on(self, before, after):
        return after


class StateBeforeTheLastStep(Recurrent):
    def handed_on(self, before, after):
        return before


class StateFaded(Recurrent):
    def handed_on(self, before, after):
        return 0.9 * after


class FirstStepTwice(Recurrent):
    """What is special about the first step of a fragment."""

    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        state = ops.tanh(inputs[0] + 0.5 * state)
        outputs = []
        for t in range(inputs.shape[0]):
            state = ops.tanh(inputs[t] + 0.5 * ops.where(ops.expand_dims(episode_start[t], -1), 0.0, state))
            outputs.append(state)
        return ops.stack(outputs, axis=0), state


class BeginsAtOne(Recurrent):
    """Episodes begin from another state than the one that `initial_state` gives."""

    @api(static=("batch_size",))
    def initial_state(self, batch_size):
        return self._ones(batch_size)

    @graph_fn
    def _ones(self, batch_size):
        return ops.ones((batch_size, 2))


class BeginsAtZero(BeginsAtOne):
    """Sound."""

    @graph_fn
    def _ones(self, batch_size):
        return ops.zeros((batch_size, 2))


class Lengths(Component):
    """The number of each step in its episode; sound."""

    after_an_end = 0.0

    @graph_fn(returns=2)
    def call(self, terminated, state):
        outputs = []
        for t in range(terminated.shape[0]):
            outputs.append(state + 1.0)
            state = ops.where(terminated[t], self.after_an_end, state + 1.0)
        return ops.stack(outputs, axis=0), state


class ResetIsAStep(Lengths):
    after_an_end = 1.0


class LastStepIsLeftOut(Lengths):
    after_an_end = -1.0


LENGTHS = {
    "terminated": BoolBox(add_batch_rank=True, add_time_rank=True),
    "state": FloatBox(0.0, 10.0, add_batch_rank=True),
}


@pytest.mark.parametrize("component", [ResetIsAStep, LastStepIsLeftOut], ids=lambda x: x.__name__)
def test_a_step_that_is_counted_twice_is_found(component):
    found = list(check(component, LENGTHS))
    assert [finding.cause for finding in found] == [Cause.COUNTED_TWICE]
    assert "test_fragments.py:" in found[0].where


def test_a_step_that_is_counted_once_has_no_finding():
    report = check(Lengths, LENGTHS)
    assert report.ok, str(report)


def described(component):
    return Descriptor(component.__name__, component, component, SPACES, static={"initial_state": {"batch_size": 2}})


@pytest.mark.parametrize("component", [StateBeforeTheLastStep, StateFaded, FirstStepTwice], ids=lambda x: x.__name__)
def test_another_result_in_two_fragments_is_found(component):
    report = check(component, SPACES)
    found = [finding for finding in report if finding.cause is Cause.FRAGMENTS_DIFFER]
    assert found, str(report)
    assert ".call" in found[0].where
    assert "test_fragments.py:" in found[0].where


def test_another_initial_state_is_found():
    report = check(described(BeginsAtOne))
    assert Cause.STATE_NOT_RESET in {finding.cause for finding in report}, str(report)


@pytest.mark.parametrize("target", [Recurrent, described(BeginsAtZero)], ids=["without", "with-initial-state"])
def test_the_same_result_in_two_fragments_has_no_finding(target):
    report = check(target, SPACES)
    assert report.ok, str(report)

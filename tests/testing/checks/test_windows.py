"""Checks of windows of n steps that are filled call by call."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox
from rlweave.testing import Cause, check

WINDOW = {
    "steps": Dict(
        observations=FloatBox(shape=(2,)),
        rewards=FloatBox(),
        terminated=BoolBox(),
        truncated=BoolBox(),
        next_observations=FloatBox(shape=(2,)),
    ).with_batch_rank(3)
}


class Window(Component):
    """Two steps; sound."""

    def create_variables(self, steps):
        self.observations = self.variable("observations", (3, 2), 0.0, trainable=False)
        self.rewards = self.variable("rewards", (3,), 0.0, trainable=False)
        self.next_observations = self.variable("next_observations", (3, 2), 0.0, trainable=False)
        self.ended = self.variable("ended", (3,), False, trainable=False, dtype="bool")

    @graph_fn(differentiable=False, returns=1)
    def push(self, steps):
        alive = ops.logical_not(self.ended.value)
        found = {
            "observations": self.observations.value + 0.0,
            "rewards": self.rewards.value + ops.where(self.counts(alive), 0.9 * steps["rewards"], 0.0),
            "next_observations": self.last(alive, self.next_observations.value, steps["next_observations"]),
        }
        self.observations.assign(steps["observations"])
        self.rewards.assign(steps["rewards"])
        self.next_observations.assign(steps["next_observations"])
        self.ended.assign(ops.logical_or(steps["terminated"], steps["truncated"]))
        return found

    def counts(self, alive):
        return alive

    def last(self, alive, first, second):
        return ops.where(ops.expand_dims(alive, -1), second, first)


class RewardsOfTheNextEpisode(Window):
    def counts(self, alive):
        return ops.ones_like(alive)


class ObservationsOfTheNextEpisode(Window):
    def last(self, alive, first, second):
        return second + 0.0 * first


class NextOfTheFirst(Window):
    """Episodes that end with the second step of a window are left out."""

    def last(self, alive, first, second):
        return ops.where(ops.expand_dims(alive, -1), 0.5 * first, first) + 0.0 * second


def window(component):
    return check(component, WINDOW)


@pytest.mark.parametrize(
    ("component", "cause"),
    [
        (RewardsOfTheNextEpisode, Cause.CROSSES_EPISODES),
        (ObservationsOfTheNextEpisode, Cause.CROSSES_EPISODES),
        (NextOfTheFirst, Cause.WRONG_BOOTSTRAP),
    ],
)
def test_a_window_across_an_end_is_found(component, cause):
    found = [finding for finding in window(component) if finding.check == "windows"]
    assert cause in {finding.cause for finding in found}
    assert "test_windows.py:" in found[0].where


def test_a_window_within_an_episode_has_no_finding():
    report = window(Window)
    assert report.ok, str(report)

"""Columns of steps against lists of steps: rollouts, what is left out, neighbours that share their arrays."""

import numpy as np
import pytest

from rlweave.components.memories.trajectory_columns import TrajectoryColumns


def rows(t, num_envs, offset=0):
    """Step t: numbers that say of which step and environment they are."""
    number = 100 * t + np.arange(num_envs) + offset
    return {"x": number.astype(np.int64), "y": (np.stack([number, -number], 1).astype(np.float32),)}


def is_whole(rollout, numbers):
    """A rollout holds these numbers (T, B), in all its leaves."""
    np.testing.assert_array_equal(rollout["x"], numbers)
    np.testing.assert_array_equal(rollout["y"][0], np.stack([numbers, -numbers], -1))
    assert (rollout["x"].dtype, rollout["y"][0].dtype) == (np.int64, np.float32)
    return True


class ByLists:
    """The same with a list for each environment."""

    def __init__(self, steps, num_envs):
        self.steps, self.open, self.complete = steps, [[] for _ in range(num_envs)], []

    def add(self, step, valid):
        for env in np.flatnonzero(valid):
            self.open[env].append(step["x"][env])

    def take(self):
        full = [env for env, column in enumerate(self.open) if len(column) == self.steps]
        for env in full:
            self.complete.append(self.open[env])
            self.open[env] = []
        if len(self.complete) < len(self.open):
            return None
        oldest = [self.complete.pop(0) for _ in self.open]
        return np.array(oldest).T


@pytest.mark.parametrize("share", [1.0, 0.7, 0.2])
@pytest.mark.parametrize(("steps", "num_envs"), [(4, 3), (1, 2), (3, 1)])
def test_rollouts_are_those_of_lists(steps, num_envs, share):
    columns, lists = TrajectoryColumns(steps, num_envs), ByLists(steps, num_envs)
    rng, rollouts = np.random.default_rng(0), 0
    for t in range(200):
        step, valid = rows(t, num_envs), rng.random(num_envs) < share
        columns.add(step, valid)
        lists.add(step, valid)
        if t == 100:  # a copy goes on as the original would
            state, columns = columns.state_dict(), TrajectoryColumns(steps, num_envs)
            columns.load_state_dict(state)
        rollout, expected = columns.take(), lists.take()
        assert (rollout is None) == (expected is None)
        if expected is not None:
            rollouts += 1
            assert is_whole(rollout, expected)
    assert rollouts >= 200 * share / steps * 0.7


def test_a_rollout_has_arrays_of_its_own():
    columns, everyone = TrajectoryColumns(2, 2), np.ones(2, bool)
    step = rows(0, 2)
    columns.add(step, everyone)
    step["x"][:] = -1  # the environment goes on in its own array
    columns.add(rows(1, 2), everyone)
    first = columns.take()
    kept = first["x"].copy()
    for t in (2, 3):
        columns.add(rows(t, 2), everyone)
    np.testing.assert_array_equal(first["x"], kept)
    np.testing.assert_array_equal(kept, [[0, 1], [100, 101]])
    np.testing.assert_array_equal(columns.take()["x"], [[200, 201], [300, 301]])


def test_what_is_cleared_is_gone():
    columns, one = TrajectoryColumns(2, 2), np.array([True, False])
    for t in range(3):
        columns.add(rows(t, 2), one)
        columns.take()
    columns.clear()
    for t in (7, 8):
        columns.add(rows(t, 2), np.ones(2, bool))
    np.testing.assert_array_equal(columns.take()["x"], [[700, 701], [800, 801]])


def test_neighbours_share_the_arrays_of_whole_rollouts():
    first, second = TrajectoryColumns(2, 3), TrajectoryColumns(2, 2)
    second.lie_beside(first)
    for beginning in (0, 2):  # the second rollout gets arrays of its own
        for t in (beginning, beginning + 1):
            first.add(rows(t, 3), np.ones(3, bool))
            second.add(rows(t, 2, offset=10), np.ones(2, bool))
        one, other = first.take(), second.take()
        both = first.take_both()
        np.testing.assert_array_equal(both["x"], np.concatenate([one["x"], other["x"]], axis=1))
        assert is_whole(both, np.array([[100 * t + n for n in (0, 1, 2, 10, 11)] for t in (beginning, beginning + 1)]))
        assert np.shares_memory(both["x"], one["x"])
        assert np.shares_memory(both["x"], other["x"])


def test_neighbours_of_which_one_waited_share_nothing():
    first, second = TrajectoryColumns(2, 2), TrajectoryColumns(2, 2)
    second.lie_beside(first)
    for t in range(3):
        first.add(rows(t, 2), np.array([True, t > 0]))  # one environment has a step less
        second.add(rows(t, 2), np.ones(2, bool) & (t < 2))
        first.take()
    assert second.take() is not None
    assert first.take_both() is None

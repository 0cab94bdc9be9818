"""Rollouts of a fixed shape: every step once, in the order of its row, and nothing flows where two rows meet."""

import numpy as np
import pytest

from rlweave.components.returns import generalized_advantages
from rlweave.extras.multi_agent_worker import PackSequences, PackTrajectories, packed
from rlweave.flow import ABSORBED, Envelope, SampleBatch


def steps(slots, numbers, begins=(), ended=(), cut=()):
    """Steps of rows: step n of row s is in state 100 s + n."""
    slots, numbers = np.array(slots), np.array(numbers)
    observations = (100.0 * slots + numbers).astype(np.float32)
    names = list(zip(slots.tolist(), numbers.tolist(), strict=True))
    return SampleBatch(
        {
            "observations": {"x": observations},
            "rewards": observations / 7,
            "terminated": np.array([name in ended for name in names]),
            "truncated": np.array([name in cut for name in names]),
            "next_observations": {"x": observations + 0.5},
            "slot": slots.astype(np.int32),
            "begins": np.array([name in begins for name in names]),
        }
    )


def test_rows_that_make_all_steps_are_columns():
    rollout = packed(steps([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2], begins={(0, 0), (1, 0)}), columns=2)
    assert (rollout.layout, rollout.leading) == ("trajectories", (3, 2))
    np.testing.assert_array_equal(rollout["observations"]["x"], [[0, 100], [1, 101], [2, 102]])
    np.testing.assert_array_equal(rollout["truncated"][:-1], np.zeros((2, 2), bool))
    assert "slot" not in rollout
    assert "begins" not in rollout


def test_a_step_where_rows_meet_is_cut():
    batch = steps([0, 1, 0, 1, 0, 0], [0, 0, 1, 1, 2, 3], ended={(0, 3)})
    rollout = packed(batch, columns=1)
    np.testing.assert_array_equal(rollout["observations"]["x"][:, 0], [0, 1, 2, 3, 100, 101])
    # 3 is terminated already, and stays that
    np.testing.assert_array_equal(rollout["terminated"][:, 0], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(rollout["truncated"][:, 0], [0, 0, 0, 0, 0, 0])
    rollout = packed(steps([0, 1, 0, 1, 0, 0], [0, 0, 1, 1, 2, 3]), columns=1)
    np.testing.assert_array_equal(rollout["truncated"][:, 0], [0, 0, 0, 1, 0, 0])


def test_a_row_that_began_anew_does_not_follow_on_itself():
    rollout = packed(steps([0, 0, 0, 0], [4, 5, 0, 1], begins={(0, 0)}), columns=1)
    np.testing.assert_array_equal(rollout["truncated"][:, 0], [0, 1, 0, 0])


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_advantages_of_a_packed_rollout_are_those_of_each_row_alone(columns):
    """A loop over each row by itself; it bootstraps where the row is cut, by packing or otherwise."""
    random = np.random.default_rng(columns)
    for _ in range(20):
        rows = 12
        slots = random.integers(0, 4, rows)
        numbers = np.array([int((slots[:i] == slots[i]).sum()) for i in range(rows)])
        names = list(zip(slots.tolist(), numbers.tolist(), strict=True))
        ended = {name for name in names if random.random() < 0.15}
        cut = {name for name in names if random.random() < 0.15}
        rollout = packed(steps(slots, numbers, ended=ended, cut=cut), columns)
        value, discount, lam = (lambda state: np.sin(state)), 0.9, 0.8
        observations, following = (
            rollout["observations"]["x"].astype(np.float64),
            rollout["next_observations"]["x"].astype(np.float64),
        )
        values, next_values = value(observations), value(following)  # as PPO has them
        advantages, _ = generalized_advantages(
            rollout["rewards"].astype(np.float64), values, next_values, rollout["terminated"], rollout["truncated"],
            discount, lam,
        )  # fmt: skip
        got = dict(zip(observations.T.reshape(-1).tolist(), np.asarray(advantages).T.reshape(-1).tolist(), strict=True))
        columns_of = {state: column for column, own in enumerate(observations.T.tolist()) for state in own}
        for slot in range(4):
            mine = [name for name in names if name[0] == slot]
            running = 0.0
            for position in reversed(range(len(mine))):
                name = mine[position]
                state = 100.0 * name[0] + name[1]
                stops = name in ended or name in cut or position == len(mine) - 1
                stops |= not stops and columns_of[state] != columns_of[state + 1]  # the rollout is cut here
                bootstrap = 0.0 if name in ended else value(state + 0.5)
                error = np.float32(state) / np.float32(7) + discount * bootstrap - value(state)
                running = error + (0.0 if stops else discount * lam * running)
                assert got[state] == pytest.approx(running, rel=1e-5)


def feed(operator, *batches):
    return [operator.process(Envelope(batch, "worker/0", number, number)) for number, batch in enumerate(batches)]


def test_it_waits_for_enough_steps_and_keeps_the_newest_for_later():
    operator = PackTrajectories(steps=2, columns=2)
    first, second, third = feed(
        operator,
        steps([0, 1, 0], [0, 0, 1]),
        steps([0, 1, 0], [2, 1, 3]),
        steps([1, 1], [2, 3]),
    )
    assert first is ABSORBED
    np.testing.assert_array_equal(second.payload["observations"]["x"], [[0, 2], [1, 100]])
    assert (second.weight_version, second.parts) == (0, (("worker/0", 0), ("worker/0", 1)))
    # what did not fit the last time, steps 101 and 3, is there now
    np.testing.assert_array_equal(third.payload["observations"]["x"], [[3, 102], [101, 103]])
    assert third.weight_version == 1
    assert [item.payload.num_steps for item in (second, third)] == [4, 4]


def test_steps_do_not_follow_on_those_of_an_item_that_was_dropped():
    """Items 1 of the first worker and 0 of the second are missing: row 0 makes steps 0, 1 and 4, 5."""
    operator = PackTrajectories(steps=8, columns=1)
    items = [
        Envelope(steps([0, 1, 0, 1], [0, 0, 1, 1], begins={(0, 0), (1, 0)}), "worker/0", 0),
        Envelope(steps([2], [4]), "worker/1", 1),
        Envelope(steps([0, 1, 0], [4, 2, 5]), "worker/0", 2),
    ]
    first, second, third = items[0], items[1], items[2]
    assert operator.process(first) is operator.process(second) is ABSORBED
    again = PackTrajectories(steps=8, columns=1)
    again.load_state_dict(operator.state_dict())
    for one in (operator, again):
        rollout = one.process(third).payload
        np.testing.assert_array_equal(rollout["observations"]["x"][:, 0], [0, 1, 4, 5, 100, 101, 102, 204])
        np.testing.assert_array_equal(rollout["truncated"][:, 0], [0, 1, 0, 1, 0, 1, 1, 0])


def test_an_item_without_steps_is_not_missing():
    operator = PackTrajectories(steps=4, columns=1)
    *_, rollout = feed(operator, steps([0, 0], [0, 1]), SampleBatch({}), steps([0, 0], [2, 3]))
    assert not rollout.payload["truncated"].any()


def test_items_without_steps_and_the_end_of_a_stream():
    operator = PackTrajectories(steps=4, columns=2)
    assert feed(operator, SampleBatch({}), steps([0, 1, 0], [0, 0, 1])) == [ABSORBED, ABSORBED]
    (rest,) = operator.flush()
    np.testing.assert_array_equal(rest.payload["observations"]["x"], [[0], [1], [100]])
    assert operator.flush() == []


def test_what_is_no_whole_sequence_ends_with_the_stream():
    operator = PackSequences(steps=4, columns=2)
    assert feed(operator, steps([0, 1, 0], [0, 0, 1])) == [ABSORBED]
    assert operator.flush() == []


def test_its_state_goes_into_a_checkpoint():
    operator, again = PackTrajectories(2, 2), PackTrajectories(2, 2)
    feed(operator, steps([0, 1, 0], [0, 0, 1]))
    again.load_state_dict(operator.state_dict())
    more = Envelope(steps([0, 1, 0], [2, 1, 3]), "worker/0", 1, 1)
    mine, its = operator.process(more), again.process(more)
    np.testing.assert_equal(mine.payload.data, its.payload.data)
    np.testing.assert_equal(operator.state_dict(), again.state_dict())

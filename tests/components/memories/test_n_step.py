"""n-step windows against a brute-force loop over whole episodes."""

import doctest

import numpy as np
import pytest

from rlweave.components.memories import NStepAccumulator, ReplayMemory, n_step
from rlweave.errors import CheckpointError, ConfigError, ExecutionError
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from tests.components.memories.test_replay import memory_of


def stream(rng, steps, B, chance=0.2):
    """Steps of B environments whose observations say (env, episode, step in it): every join can be seen."""
    where = np.zeros((B, 3), np.int32)
    where[:, 0] = np.arange(B)
    result = []
    for _ in range(steps):
        terminated, truncated = rng.random(B) < chance / 2, rng.random(B) < chance / 2
        following = where + np.array([0, 0, 1])
        result.append(
            {
                "observations": where.copy(),
                "actions": rng.integers(0, 5, B).astype(np.int32),
                "rewards": rng.normal(size=B).astype(np.float32),
                "terminated": terminated,
                "truncated": truncated,
                "next_observations": following.copy(),
            }
        )
        ended = terminated | truncated
        where = np.where(ended[:, None], following * [1, 0, 0] + (where + np.array([0, 1, 0])) * [0, 1, 0], following)
    return result


def brute_force(steps, n, g, flushed):
    """All transitions by (env, episode, step), straight from the definition, in float64."""
    found = {}
    for t in range(len(steps)):
        for b in range(len(steps[0]["rewards"])):
            total, used = 0.0, 0
            for k in range(t, min(t + n, len(steps))):
                step = steps[k]
                total += g**used * float(step["rewards"][b])
                used += 1
                ended = step["terminated"][b] or step["truncated"][b]
                if ended:
                    break
            if ended or used == n or flushed:
                found[tuple(steps[t]["observations"][b])] = (
                    int(steps[t]["actions"][b]),
                    total,
                    tuple(step["next_observations"][b]),
                    bool(step["terminated"][b]),
                    0.0 if step["terminated"][b] else g**used,
                )
    return found


def collected(batches):
    found = {}
    for batch in batches:
        for i in range(len(batch["rewards"])):
            key = tuple(batch["observations"][i])
            assert key not in found, "one step started two transitions"
            found[key] = (
                int(batch["actions"][i]),
                float(batch["rewards"][i]),
                tuple(batch["next_observations"][i]),
                bool(batch["terminated"][i]),
                float(batch["discounts"][i]),
            )
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, (action, total, following, terminated, discount) in expected.items():
        assert found[key][0] == action
        assert found[key][2:4] == (following, terminated)
        np.testing.assert_allclose(found[key][1], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[key][4], discount, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("B", [1, 4])
def test_windows_equal_a_loop_over_the_stream(n, B):
    for seed in range(5):
        steps = stream(np.random.default_rng(seed), 60, B)
        windows = NStepAccumulator(n, 0.9, B)
        batches = [windows.add(**step) for step in steps]
        assert_same(collected(batches), brute_force(steps, n, 0.9, flushed=False))
        assert_same(collected([*batches, windows.flush()]), brute_force(steps, n, 0.9, flushed=True))
        assert len(windows.flush()["rewards"]) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("lengths", [[60], [1, 2, 3, 4, 5, 6, 7, 8, 9, 15], [7] * 8 + [4]])
def test_many_steps_at_once_give_what_they_give_one_by_one(n, lengths):
    """Bit for bit and in the same order, wherever the pieces begin; some rows are no transitions."""
    for seed in range(3):
        steps = stream(np.random.default_rng(seed), 60, 3)
        after_end = np.zeros(3, bool)
        for step in steps:  # every second end is followed by a row that is none
            step["valid"] = ~after_end
            after_end = step["valid"] & (step["terminated"] | step["truncated"]) & (step["actions"] % 2 == 0)
        one, many = NStepAccumulator(n, 0.9, 3), NStepAccumulator(n, 0.9, 3)
        for first, length in zip(np.cumsum([0, *lengths[:-1]]), lengths, strict=True):
            piece = steps[first : first + length]
            singly = [one.add(**step) for step in piece]
            together = many.extend(**{key: np.stack([step[key] for step in piece]) for key in steps[0]})
            for key, value in together.items():
                np.testing.assert_array_equal(value, np.concatenate([part[key] for part in singly]))
        np.testing.assert_equal(one.state_dict(), many.state_dict())


def test_oracle():
    windows, no = NStepAccumulator(3, 0.9, 1), np.array([False])
    rewards, discounts = [], []
    for t, reward in enumerate([1, 2, 3, 4, 5]):
        batch = windows.add(np.array([t]), np.array([0]), np.array([reward]), no, no, np.array([t + 1]))
        rewards += list(batch["rewards"])
        discounts += list(batch["discounts"])
    batch = windows.flush()
    np.testing.assert_allclose([*rewards, *batch["rewards"]], [5.23, 7.94, 10.65, 8.5, 5.0], rtol=1e-6)
    np.testing.assert_allclose([*discounts, *batch["discounts"]], [0.729, 0.729, 0.729, 0.81, 0.9], rtol=1e-6)


def test_order_of_a_step_is_by_environment_then_by_start():
    windows, no = NStepAccumulator(3, 1.0, 2), np.zeros(2, bool)
    observations = lambda t: np.array([10 + t, 20 + t])  # noqa: E731
    for t in range(2):
        assert len(windows.add(observations(t), no, no, no, no, observations(t + 1))["observations"]) == 0
    batch = windows.add(observations(2), no, no, np.array([True, False]), no, observations(3))
    np.testing.assert_array_equal(batch["observations"], [10, 11, 12, 20])
    np.testing.assert_array_equal(batch["next_observations"], [13, 13, 13, 23])
    np.testing.assert_array_equal(batch["discounts"], [0, 0, 0, 1])


def test_accumulators_of_parts_give_side_by_side_what_one_of_all_gives():
    steps = stream(np.random.default_rng(3), 40, 4, chance=0.3)
    whole, parts = NStepAccumulator(3, 0.9, 4), [NStepAccumulator(3, 0.9, 2) for _ in range(2)]
    for step in steps:
        own = [
            part.add(**{name: leaf[2 * number : 2 * number + 2] for name, leaf in step.items()})
            for number, part in enumerate(parts)
        ]
        for name, value in whole.add(**step).items():
            np.testing.assert_equal(np.concatenate([one[name] for one in own]), value)


def test_terminated_wins_over_truncated():
    windows, yes = NStepAccumulator(2, 0.5, 1), np.array([True])
    batch = windows.add(np.array([0]), np.array([0]), np.array([1.0]), yes, yes, np.array([1]))
    np.testing.assert_array_equal(batch["terminated"], [True])
    np.testing.assert_array_equal(batch["discounts"], [0.0])


def test_the_slot_before_the_write_cursor():
    # Fault 7: capacity 10, 13 inserts, n = 3; the newest record is a whole window, not one across the cursor.
    steps = stream(np.random.default_rng(1), 15, 1, chance=0.0)
    space = NStepAccumulator.record_space(IntBox(-100, 100, shape=(3,)), IntBox(5))
    memory, windows = memory_of(ReplayMemory(10), space), NStepAccumulator(3, 0.9, 1)
    inserted = 0
    for step in steps:
        batch = windows.add(**step)
        if len(batch["rewards"]):
            memory.insert(batch)
            inserted += len(batch["rewards"])
    assert inserted == 13
    expected = brute_force(steps, 3, 0.9, flushed=False)
    records, indices, _ = memory.sample(batch_size=200)
    assert 13 % 10 - 1 in indices
    kept = collected([{k: v[np.unique(indices, return_index=True)[1]] for k, v in records.items()}])
    assert_same(kept, {key: value for key, value in expected.items() if key[2] >= 3})


def test_training_in_two_halves():
    # Fault 8: 5 steps, then 5 more, on an environment of 8 steps.
    def run(calls):
        rng, windows, t, batches, steps = np.random.default_rng(2), NStepAccumulator(3, 0.9, 1), 0, [], []
        for call in calls:
            for _ in range(call):
                ended = np.array([t % 8 == 7])
                state = np.array([[0, t // 8, t % 8]])
                step = {
                    "observations": state,
                    "actions": np.array([0]),
                    "rewards": rng.normal(size=1),
                    "terminated": ended,
                    "truncated": ~ended & False,
                    "next_observations": state + np.array([0, 0, 1]),
                }
                steps.append(step)
                batches.append(windows.add(**step))
                t += 1
        return steps, batches

    steps, batches = run([5, 5])
    assert_same(collected(batches), brute_force(steps, 3, 0.9, flushed=False))
    assert collected(batches) == collected(run([10])[1])


def test_a_reset_between_halves_needs_a_flush():
    first = stream(np.random.default_rng(3), 5, 2, chance=0.0)
    second = stream(np.random.default_rng(4), 5, 2, chance=0.0)
    for step in second:
        step["observations"][:, 1] += 1  # episodes of their own
        step["next_observations"][:, 1] += 1
    windows = NStepAccumulator(3, 0.9, 2)
    batches = [windows.add(**step) for step in first] + [windows.flush()]
    batches += [windows.add(**step) for step in second] + [windows.flush()]
    expected = {**brute_force(first, 3, 0.9, flushed=True), **brute_force(second, 3, 0.9, flushed=True)}
    assert_same(collected(batches), expected)


def test_rows_that_are_no_transitions_are_left_out():
    # NEXT_STEP autoreset: after an end comes a row that is no transition.
    steps = stream(np.random.default_rng(5), 40, 3)
    windows, batches, queue = NStepAccumulator(3, 0.9, 3), [], [[] for _ in range(3)]
    for step in steps:
        for b in range(3):
            queue[b].append((True, {key: value[b] for key, value in step.items()}))
            if step["terminated"][b] or step["truncated"][b]:
                queue[b].append((False, {**queue[b][-1][1], "rewards": np.float32(1e6), "terminated": True}))
    for row in zip(*queue, strict=False):
        step = {key: np.stack([values[key] for _, values in row]) for key in row[0][1]}
        batches.append(windows.add(**step, valid=np.array([is_valid for is_valid, _ in row])))
    found, expected = collected(batches), brute_force(steps, 3, 0.9, flushed=False)
    shown = min(len(rows) for rows in queue)
    for b in range(3):
        valid = sum(is_valid for is_valid, _ in queue[b][:shown])
        assert sum(key[0] == b for key in found) >= valid - 2
    assert_same(found, {key: value for key, value in expected.items() if key in found})
    windows.reset()
    windows.add(**steps[0] | {"terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)})
    with pytest.raises(ExecutionError, match="middle of an episode"):
        windows.add(**steps[1], valid=np.array([True, False, True]))


def test_nested_observations_that_are_mutated_in_place():
    # Fault 25.
    space = Dict(a=FloatBox(shape=(2,)), b=Tuple(IntBox(9)))
    state, no = space.zeros(1), np.array([False])
    state = {"a": np.zeros((1, 2), np.float32), "b": (np.zeros(1, np.int32),)}
    following = {"a": np.zeros((1, 2), np.float32), "b": (np.zeros(1, np.int32),)}
    windows = NStepAccumulator(2, 1.0, 1)
    for t in range(3):
        state["a"][:], state["b"][0][:] = t, t
        following["a"][:], following["b"][0][:] = t + 1, t + 1
        batch = windows.add(state, np.array([t]), np.ones(1), no, no, following)
        if t:
            assert space.with_batch_rank().contains(batch["observations"])
            np.testing.assert_array_equal(batch["observations"]["a"], [[t - 1, t - 1]])
            np.testing.assert_array_equal(batch["next_observations"]["b"][0], [t + 1])


def test_state_round_trip():
    steps = stream(np.random.default_rng(6), 30, 3)
    one, other = NStepAccumulator(4, 0.9, 3), NStepAccumulator(4, 0.9, 3)
    for step in steps[:13]:
        one.add(**step)
    other.load_state_dict(one.state_dict())
    with pytest.raises(ExecutionError, match="nesting"):
        other.flush()
    for step in steps[13:]:
        a, b = one.add(**step), other.add(**step)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
    with pytest.raises(CheckpointError, match="do not fit"):
        NStepAccumulator(3, 0.9, 3).load_state_dict(one.state_dict())


def test_what_was_open_goes_with_a_load():
    used, fresh = NStepAccumulator(3, 0.9, 2), NStepAccumulator(3, 0.9, 2)
    no = np.zeros(2, bool)
    used.add({"a": np.zeros(2)}, no, np.ones(2), no, no, {"a": np.zeros(2)})
    used.load_state_dict(fresh.state_dict())
    np.testing.assert_equal(used.state_dict(), fresh.state_dict())
    # observations may be nested in another way now
    used.add(np.zeros(2), no, np.ones(2), no, no, np.zeros(2))
    assert set(used.state_dict()) == {
        *("n", "open", "rewards", "first/observations", "first/actions", "present/next_observations")
    }


@pytest.mark.parametrize(("ends", "refused"), [([False, False, False], True), ([False, True, False], False)])
def test_a_gap_within_a_call_is_refused_in_an_episode(ends, refused):
    windows = NStepAccumulator(3, 0.9, 1)
    column = np.array(ends)[:, None]
    x, valid = np.arange(3.0)[:, None], np.array([[True], [True], [False]])
    arguments = (x, x, x, np.zeros_like(column), column, x, valid)
    if refused:
        with pytest.raises(ExecutionError, match="middle of an episode"):
            windows.extend(*arguments)
    else:
        assert len(windows.extend(*arguments)["rewards"]) == 2


def test_impossible_settings():
    for n, discount, num_envs in ((0, 0.9, 1), (1, 1.1, 1), (1, 0.9, 0)):
        with pytest.raises(ConfigError):
            NStepAccumulator(n, discount, num_envs)


def test_example():
    assert doctest.testmod(n_step, extraglobs={"np": np}).failed == 0

"""Prioritized replay: known numbers, frequencies, importance weights, and what can go wrong with priorities."""

import numpy as np
import pytest

from rlweave.components.memories import GraphPrioritizedReplay, PrioritizedReplay
from rlweave.errors import ConfigError, ExecutionError
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.memories.test_replay import memory_of, numbers


def with_errors(errors, capacity=None, **options):
    """A memory that holds one record per TD error."""
    memory = memory_of(PrioritizedReplay(capacity or len(errors), epsilon=0.0, **options))
    memory.insert(numbers(*range(len(errors))))
    memory.update_priorities(np.arange(len(errors), dtype=np.int32), np.array(errors, np.float32))
    return memory


def leaves(memory):
    nodes = memory.state_dict()["memory/sum-tree"]
    return nodes[nodes.size // 2 :]


def frequencies(memory, count=100_000, batch=500):
    found = np.zeros(leaves(memory).size)
    for _ in range(count // batch):
        found += np.bincount(memory.sample(batch_size=batch)[1], minlength=found.size)
    return found / count


def test_probabilities_and_weights_of_four_priorities():
    memory = with_errors([0.5, -1.0, 1.0, -3.0], alpha=1.0, beta=0.4)
    np.testing.assert_array_equal(leaves(memory), [0.5, 1.0, 1.0, 3.0])
    expected = [0.0909091, 0.1818182, 0.1818182, 0.5454545]
    np.testing.assert_allclose(frequencies(memory), expected, atol=5e-3)
    _, indices, weights = memory.sample(batch_size=64)
    assert set(indices) == {0, 1, 2, 3}
    np.testing.assert_allclose(weights, np.array([1, 0.7578583, 0.7578583, 0.4883593])[indices], rtol=1e-6)


def test_alpha():
    memory = with_errors([0.5, 1.0, 1.0, 3.0], alpha=0.6)
    np.testing.assert_allclose(leaves(memory), [0.659754, 1, 1, 1.933182], rtol=1e-6)
    even = with_errors([0.0, 1.0, 5.0, 100.0], alpha=0.0)
    np.testing.assert_allclose(frequencies(even), 0.25, atol=5e-3)


def test_frequencies_match_priorities():
    rng = np.random.default_rng(0)
    errors = rng.random(300) ** 3 * (rng.random(300) > 0.2)
    memory = with_errors(errors, capacity=400, alpha=0.7)
    found = frequencies(memory)
    probabilities = np.zeros(512)
    probabilities[:300] = np.float32(errors).astype(np.float64) ** 0.7
    probabilities /= probabilities.sum()
    assert found[probabilities == 0].sum() == 0
    # stratified draws scatter less than independent ones
    assert (np.abs(found - probabilities) <= 5 * np.sqrt(probabilities / 100_000)).all()


def test_importance_weights_undo_the_bias():
    # With beta 1 the weighted mean over draws is the plain mean over records, up to one factor.
    rng = np.random.default_rng(1)
    errors = rng.random(20) + 0.05
    memory = with_errors(errors, alpha=0.8, beta=1.0)
    totals = np.zeros(20)
    for _ in range(300):
        _, indices, weights = memory.sample(batch_size=200)
        assert weights.max() == 1.0
        np.add.at(totals, indices, weights)
    np.testing.assert_allclose(totals / totals.mean(), 1.0, atol=0.05)


def test_new_records_get_the_largest_priority():
    memory = memory_of(PrioritizedReplay(4, alpha=0.5, epsilon=0.0))
    memory.insert(numbers(0, 1))
    np.testing.assert_array_equal(leaves(memory), [1, 1, 0, 0])
    memory.update_priorities(np.array([0, 1], np.int32), np.array([-16.0, 0.25], np.float32))
    memory.insert(numbers(2))
    np.testing.assert_array_equal(leaves(memory), [4, 0.5, 4, 0])
    memory.update_priorities(np.array([0], np.int32), np.array([1.0], np.float32))
    memory.insert(numbers(3, 4))  # wraps around, over slot 0
    np.testing.assert_array_equal(leaves(memory), [4, 0.5, 4, 4])


def test_the_last_of_equal_indices_wins():
    memory = with_errors([1.0] * 6, alpha=1.0)
    memory.update_priorities(np.array([2, 4, 2, 4], np.int32), np.array([7, 8, 9, 10], np.float32))
    np.testing.assert_array_equal(leaves(memory), [1, 1, 9, 1, 10, 1, 0, 0])


def test_all_priorities_zero_draws_evenly():
    memory = with_errors([0.0] * 5, capacity=9)
    found = frequencies(memory)
    np.testing.assert_allclose(found[:5], 0.2, atol=5e-3)
    assert found[5:].sum() == 0
    np.testing.assert_array_equal(memory.sample(batch_size=4)[2], 1.0)


def test_beta_follows_the_number_of_records():
    beta = {"type": "linear", "start": 0.0, "end": 1.0, "steps": 20}
    memory = memory_of(PrioritizedReplay(4, alpha=1.0, beta=beta, epsilon=0.0))
    memory.insert(numbers(0, 1, 2, 3))
    priorities = np.array([1, 2, 4, 8], np.float32)
    for inserted in (4, 8, 20, 24):
        memory.update_priorities(np.arange(4, dtype=np.int32), priorities)
        _, indices, weights = memory.sample(batch_size=100)
        expected = (1.0 / priorities) ** min(inserted / 20, 1.0)
        np.testing.assert_allclose(weights, expected[indices] / expected[indices].max(), rtol=1e-6)
        memory.insert(numbers(*range(12 if inserted == 8 else 4)))


def test_bad_priorities_are_refused_and_change_nothing():
    memory = with_errors([1.0, 2.0], capacity=4)
    before = memory.state_dict()
    for errors, message in (([1.0, np.nan], "not finite"), ([np.inf, 1.0], "not finite")):
        with pytest.raises(ExecutionError, match=message):
            memory.update_priorities(np.array([0, 1], np.int32), np.array(errors, np.float32))
    for slots in ([0, 2], [-1, 0], [3, 1]):
        with pytest.raises(ExecutionError, match="holds no record"):
            memory.update_priorities(np.array(slots, np.int32), np.array([1.0, 1.0], np.float32))
    for path, value in memory.state_dict().items():
        np.testing.assert_array_equal(value, before[path])


def test_thousand_random_updates_between_inserts():
    # Fault 24, through the memory.
    rng = np.random.default_rng(2)
    memory = memory_of(PrioritizedReplay(37, alpha=1.0, epsilon=0.0))
    expected, largest, inserted = np.zeros(64), 1.0, 0
    for _ in range(1000):
        count = int(rng.integers(1, 5))
        memory.insert(numbers(*range(count)))
        expected[(inserted + np.arange(count)) % 37] = largest
        inserted += count
        slots = rng.integers(0, min(inserted, 37), 6).astype(np.int32)
        errors = (rng.integers(0, 64, 6) / 8).astype(np.float32)
        memory.update_priorities(slots, errors)
        for slot, error in zip(slots, errors, strict=True):
            expected[slot] = error
        largest = max(largest, errors.max())
        if expected.any():
            assert (expected[memory.sample(batch_size=5)[1]] > 0).all()
    nodes = memory.state_dict()["memory/sum-tree"]
    np.testing.assert_array_equal(nodes[64:], expected)
    assert nodes[1] == expected.sum()


def test_impossible_settings():
    for options in ({"alpha": -0.1}, {"epsilon": -1e-3}, {"alpha": float("nan")}):
        with pytest.raises(ConfigError, match="is out of range"):
            PrioritizedReplay(4, **options)


@pytest.mark.parametrize("kind", [PrioritizedReplay, GraphPrioritizedReplay])
def test_records_may_be_nested(kind):
    records = Dict(state=Dict(a=FloatBox(shape=(2,)), b=Tuple(IntBox(9))), reward=FloatBox(), add_batch_rank=True)
    spaces = {"records": records, "indices": IntBox(4, add_batch_rank=True), "td_errors": FloatBox(add_batch_rank=True)}
    memory = ComponentTest(kind(4), spaces).executor
    given = {
        "state": {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": (np.arange(3, dtype=np.int32),)},
        "reward": np.arange(3, dtype=np.float32),
    }
    memory.insert(given)
    found, indices, _ = memory.sample(batch_size=32)
    assert set(indices) == {0, 1, 2}
    np.testing.assert_array_equal(found["state"]["a"], given["state"]["a"][indices])
    np.testing.assert_array_equal(found["state"]["b"][0], indices)
    np.testing.assert_array_equal(found["reward"], indices)

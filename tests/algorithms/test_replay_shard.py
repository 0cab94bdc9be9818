"""A shard of a replay memory: records are known by number, and drawn by the priorities that came with them."""

import functools

import numpy as np
import pytest

from rlweave.algorithms.replay_shard import ReplayShard, ShardFactory
from rlweave.components import PrioritizedReplay
from rlweave.flow import SampleBatch
from rlweave.spaces import Dict, FloatBox, IntBox

RECORDS = Dict(observations=FloatBox(shape=(2,)), actions=IntBox(3))


def shard(capacity=8, batch_size=16, alpha=1.0, seed=0):
    return ReplayShard(PrioritizedReplay(capacity, alpha, 0.4, epsilon=0.0), RECORDS, batch_size, seed)


def batch(values, priorities):
    values = np.asarray(values)
    observations = np.stack([values, -values], axis=1).astype(np.float32)
    data = {"observations": observations, "actions": (values % 3).astype(np.int32)}
    return SampleBatch({**data, "priorities": np.asarray(priorities, np.float32)})


def drawn(memory, count=200):
    """Numbers drawn, each with the value of its record."""
    found = []
    for _ in range(count):
        sample = memory.sample()
        assert sample.num_steps == memory.batch_size
        found += list(zip(sample["numbers"].tolist(), sample["records"]["observations"][:, 0].tolist(), strict=True))
    return found


def test_new_records_are_drawn_by_the_priorities_they_came_with():
    memory = shard(batch_size=500)
    memory.insert(batch([0, 1, 2, 3], [0.5, 1.0, 1.0, 3.0]))
    numbers = np.array([number for number, _ in drawn(memory)])
    frequencies = np.bincount(numbers, minlength=4) / len(numbers)
    np.testing.assert_allclose(frequencies, np.array([0.5, 1.0, 1.0, 3.0]) / 5.5, atol=5e-3)
    weights = memory.sample()
    expected = (0.5 / np.array([0.5, 1.0, 1.0, 3.0])) ** 0.4  # (N P)^-beta over its largest
    np.testing.assert_allclose(weights["weights"], expected[weights["numbers"]], rtol=1e-6)


@pytest.mark.parametrize("size", [3, 8, 12])
def test_what_is_kept_is_a_copy(size):
    """On Ray, an item is a view into the object store, which it would pin as long as somebody keeps it."""
    memory, given = shard(capacity=8), batch(np.arange(size), np.ones(size))
    leaves = [given["observations"], given["actions"], given["priorities"]]
    memory.insert(given)
    before = sorted(set(drawn(memory)))
    for leaf in leaves:
        leaf[:] = 2
    assert sorted(set(drawn(memory))) == before == [(n, float(n)) for n in range(max(0, size - 8), size)]


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [12], [7, 1, 4], [20, 5]])
def test_numbers_go_on_when_the_ring_goes_round(sizes):
    memory = shard(capacity=8)
    first = 0
    for size in sizes:
        memory.insert(batch(np.arange(first, first + size), np.ones(size)))
        first += size
    pairs = set(drawn(memory))
    assert all(number == value for number, value in pairs), "record n has the number n"
    assert {number for number, _ in pairs} == set(range(first - 8, first))


def test_a_priority_that_comes_after_its_record_was_overwritten_changes_nothing():
    memory = shard(capacity=4)
    memory.insert(batch([0, 1, 2, 3], [1, 1, 1, 1]))
    sample = memory.sample()
    memory.insert(batch([4, 5], [1, 1]))  # in the slots of 0 and 1
    gone = sample["numbers"] < 2
    before = memory.graph.state_dict()["memory/sum-tree"].copy()
    assert memory.update_priorities(sample["numbers"], np.full(16, 9.0, np.float32)) == np.count_nonzero(gone) > 0
    after = memory.graph.state_dict()["memory/sum-tree"]
    leaves = slice(after.size // 2, None)
    np.testing.assert_array_equal(after[leaves][:2], before[leaves][:2])
    np.testing.assert_array_equal(after[leaves][2:4], [9.0, 9.0])
    assert memory.update_priorities(np.array([0, 1]), np.array([5.0, 5.0])) == 2, "all of them"


def test_numbers_of_a_replacement_are_new_and_so_are_its_draws():
    first, second = shard(), shard()
    second.replacing(1)
    for memory in (first, second):
        memory.insert(batch(np.arange(8), np.linspace(0.1, 1.0, 8)))
    old, new = first.sample(), second.sample()
    assert not set(old["numbers"].tolist()) & set(new["numbers"].tolist())
    assert second.update_priorities(old["numbers"], np.full(16, 100.0)) == 16
    assert second.update_priorities(new["numbers"], np.full(16, 100.0)) == 0
    assert old["records"]["observations"].tolist() != new["records"]["observations"].tolist()


def test_an_item_without_records_is_no_item():
    memory = shard()
    memory.insert(SampleBatch({}, env_steps=8))
    assert memory.inserted == 0


def test_a_shard_goes_on_from_its_state_with_the_same_draws():
    memory = shard()
    memory.replacing(2)
    memory.insert(batch(np.arange(11), np.linspace(0.1, 1.0, 11)))
    memory.sample()
    again = ShardFactory(functools.partial(PrioritizedReplay, 8, 1.0, 0.4, 0.0), RECORDS, 16, seed=7)()
    again.load_state_dict(memory.state_dict())
    for _ in range(3):
        one, other = memory.sample(), again.sample()
        np.testing.assert_array_equal(one["numbers"], other["numbers"])
        np.testing.assert_array_equal(one["records"]["observations"], other["records"]["observations"])
        np.testing.assert_array_equal(one["weights"], other["weights"])
        for mine, sample in ((memory, one), (again, other)):
            mine.update_priorities(sample["numbers"], np.abs(sample["records"]["observations"][:, 0]))
            mine.insert(batch([20], [2.0]))

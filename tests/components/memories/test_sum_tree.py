"""The sum tree: known numbers, and laws over many random updates and draws."""

import numpy as np
import pytest

from rlweave.components.memories import sum_tree


def tree_of(*priorities, capacity=None):
    nodes = np.zeros(sum_tree.node_count(capacity or len(priorities)))
    sum_tree.update(nodes, np.arange(len(priorities)), priorities)
    return nodes


def assert_exact(nodes, leaves):
    """Every parent is the sum of its two children, bit for bit, and the leaves are as expected."""
    width = nodes.size // 2
    np.testing.assert_array_equal(nodes[width : width + len(leaves)], leaves)
    np.testing.assert_array_equal(nodes[width + len(leaves) :], 0.0)
    np.testing.assert_array_equal(nodes[1:width], nodes[2::2] + nodes[3::2])


def test_two_leaves_of_four():
    nodes = np.zeros(sum_tree.node_count(4))
    sum_tree.update(nodes, np.array([2]), [1.0])
    sum_tree.update(nodes, np.array([3]), [3.0])
    assert sum_tree.total(nodes) == 4.0
    assert [sum_tree.range_sum(nodes, *r) for r in ((0, 2), (0, 3), (2, 3), (2, 4))] == [0.0, 1.0, 1.0, 4.0]
    np.testing.assert_array_equal(sum_tree.find(nodes, [0.0, 0.5, 0.99]), [2, 2, 2])
    np.testing.assert_array_equal(sum_tree.find(nodes, [1.01, 3.0, 4.0]), [3, 3, 3])


def test_prefix_search_over_four_priorities():
    nodes = tree_of(0.5, 1.0, 1.0, 3.0)
    np.testing.assert_array_equal(sum_tree.find(nodes, [0.0, 0.55, 0.99, 1.51, 3.0, 5.5]), [0, 1, 1, 2, 3, 3])
    np.testing.assert_array_equal(sum_tree.find(nodes, [0.5, 1.5, 2.5]), [1, 2, 3])


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 4096, 5000])
def test_a_query_beyond_the_total_finds_the_last_leaf_with_mass(capacity):
    nodes = np.zeros(sum_tree.node_count(capacity))
    leaf = capacity // 3
    sum_tree.update(nodes, np.array([leaf]), [0.7])
    queries = [0.0, 0.35, 0.7, np.nextafter(0.7, 1.0), 5.0]
    np.testing.assert_array_equal(sum_tree.find(nodes, queries), [leaf] * 5)


def test_the_last_of_equal_indices_wins():
    nodes = np.zeros(sum_tree.node_count(8))
    sum_tree.update(nodes, np.array([3, 5, 3, 5, 3]), [1.0, 2.0, 3.0, 4.0, 5.0])
    assert_exact(nodes, [0, 0, 0, 5, 0, 4, 0, 0])


def test_no_updates():
    nodes = tree_of(1.0, 2.0)
    sum_tree.update(nodes, np.zeros(0, np.int64), [])
    sum_tree.update_range(nodes, 1, 5.0, 0)
    assert_exact(nodes, [1.0, 2.0])


def test_million_random_updates_leave_exact_sums():
    rng = np.random.default_rng(0)
    capacity, batch = 3000, 2000
    nodes, leaves = np.zeros(sum_tree.node_count(capacity)), np.zeros(capacity)
    for _ in range(500):
        indices = rng.integers(0, capacity, batch)  # with duplicates
        # whole multiples of 1/8 add up exactly in any order; a third are zero
        priorities = rng.integers(0, 1000, batch) / 8.0 * (rng.random(batch) > 1 / 3)
        sum_tree.update(nodes, indices, priorities)
        for index, priority in zip(indices.tolist(), priorities.tolist(), strict=True):
            leaves[index] = priority
    assert_exact(nodes, leaves)
    assert sum_tree.total(nodes) == leaves.sum()


def test_sizes_of_update_agree():
    # One leaf, some and all of them take different ways through the levels.
    rng = np.random.default_rng(1)
    for capacity in (1, 7, 1000, 20_000):
        nodes, leaves = np.zeros(sum_tree.node_count(capacity)), np.zeros(capacity)
        for count in (1, 3, 100, capacity):
            indices, priorities = rng.permutation(capacity)[:count], rng.random(min(count, capacity))
            sum_tree.update(nodes, indices, priorities)
            leaves[indices] = priorities
            assert_exact(nodes, leaves)
            start = int(rng.integers(0, capacity))
            stop = min(start + count, capacity)
            sum_tree.update_range(nodes, start, 0.25, stop - start)
            leaves[start:stop] = 0.25
            assert_exact(nodes, leaves)


@pytest.mark.parametrize("capacity", [5, 700, 9000])
def test_search_equals_a_cumulative_sum(capacity):
    rng = np.random.default_rng(2)
    leaves = rng.integers(0, 100, capacity) * (rng.random(capacity) > 0.5) / 4.0
    leaves[-1] = 0.0
    nodes = tree_of(*leaves)
    ends = np.cumsum(leaves)
    queries = np.concatenate([rng.random(2000) * ends[-1], ends[ends < ends[-1]]])
    np.testing.assert_array_equal(sum_tree.find(nodes, queries), np.searchsorted(ends, queries, side="right"))


def test_draws_match_priorities_and_never_hit_an_empty_leaf():
    rng = np.random.default_rng(3)
    leaves = rng.random(3000) ** 4 * (rng.random(3000) > 0.3)
    nodes = tree_of(*leaves)
    draws = sum_tree.find(nodes, rng.random(100_000) * sum_tree.total(nodes))
    counts = np.bincount(draws, minlength=3000)
    assert counts[leaves == 0.0].sum() == 0
    expected = leaves / leaves.sum() * 100_000
    tested = expected > 5
    # chi-square: mean = degrees of freedom, variance twice that
    statistic = ((counts - expected)[tested] ** 2 / expected[tested]).sum()
    assert abs(statistic - tested.sum()) < 5 * np.sqrt(2 * tested.sum())


def test_rounding_never_leads_to_an_empty_leaf():
    # Sums of these lose digits at every level, so queries near interval ends overshoot their nodes.
    rng = np.random.default_rng(4)
    leaves = 10.0 ** rng.uniform(-12, 4, 6000) * (rng.random(6000) > 0.8)
    nodes = tree_of(*leaves)
    ends = np.cumsum(leaves)
    queries = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf), [0.0, sum_tree.total(nodes)]])
    found = sum_tree.find(nodes, queries)
    assert found.max() < 6000
    assert (leaves[found] > 0).all()

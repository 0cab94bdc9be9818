"""Trees: what one map, several at once, paths and back do to every kind of node."""

from typing import NamedTuple

import pytest

from rlweave.tree import flatten_tree, has_leaf, leaves_of, map_with_key, tree_leaves, tree_map, unflatten_like


class Pair(NamedTuple):
    left: object
    right: object


TREE = {"b": (1, [2, None]), "a": Pair(3, {"x": 4}), "empty": {}}


def test_a_map_keeps_every_kind_of_node():
    doubled = tree_map(lambda x: 2 * x, TREE)
    assert doubled == {"b": (2, [4, None]), "a": Pair(6, {"x": 8}), "empty": {}}
    assert type(doubled["a"]) is Pair
    assert list(doubled) == ["b", "a", "empty"]


def test_several_trees_are_matched_by_key():
    other = {"empty": {}, "a": Pair(30, {"x": 40}), "b": (10, [20, None])}
    summed = tree_map(lambda x, y: x + y, TREE, other)
    assert summed == {"b": (11, [22, None]), "a": Pair(33, {"x": 44}), "empty": {}}
    assert type(summed["a"]) is Pair
    with pytest.raises(ValueError, match="zip"):
        tree_map(lambda x, y: x, (1, 2), (1,))
    with pytest.raises(KeyError):
        tree_map(lambda x, y: x, {"a": 1}, {"b": 1})


def test_leaves_come_in_order():
    assert tree_leaves(TREE) == [1, 2, 3, 4]
    assert list(leaves_of({"a": "x", "b": [1, ("y", None)]}, str)) == ["x", "y"]
    assert list(leaves_of([None, 1], type(None))) == [None]
    assert has_leaf(TREE, int)
    assert not has_leaf(TREE, str)


def test_paths_and_back():
    flat = flatten_tree(TREE)
    assert flat == {"b/0": 1, "b/1/0": 2, "b/1/1": None, "a/0": 3, "a/1/x": 4}
    assert unflatten_like(TREE, flat) == TREE
    assert flatten_tree(5) == {"": 5}
    assert unflatten_like(0, {"": 5}) == 5
    assert map_with_key(lambda key, leaf: (key, leaf), {"a": [7]}) == {"a": [(("a", 0), 7)]}

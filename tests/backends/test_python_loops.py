"""Trees of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from rlweave.backends.numpy_ import ops
from rlweave.backends.python_loops import row_builder
from rlweave.tree import tree_leaves, tree_map


class Pair(NamedTuple):
    first: Any
    second: Any


TREES = [1, (1, 2), [1, {"a": 2}], {"b": (1, None), "a": [2]}, Pair(1, (2, 3)), (1, (2, 3)), (1, None)]


@pytest.mark.parametrize("tree", TREES)
def test_leaves_and_rebuild_are_inverse(tree: Any) -> None:
    rebuilt = row_builder(tree)(tuple(tree_leaves(tree)))
    assert rebuilt == tree
    assert type(rebuilt) is type(tree)


def test_tree_map_over_several_trees() -> None:
    assert tree_map(lambda a, b: a + b, {"a": (1, None), "b": [2]}, {"b": [20], "a": (10, None)}) == {
        "a": (11, None),
        "b": [22],
    }


def test_tree_map_refuses_other_structures() -> None:
    with pytest.raises(ValueError, match="zip"):
        tree_map(lambda a, b: a, (1, 2), (1,))


def test_scan_over_nothing_keeps_the_shape_of_y() -> None:
    carry, ys = ops.scan(lambda c, x: (c + x.sum(), (x * c, c)), np.float32(1), np.zeros((0, 3), np.float32))
    assert carry == 1
    assert [y.shape for y in ys] == [(0, 3), (0,)]


def test_scan_without_a_length_raises() -> None:
    with pytest.raises(ValueError, match="length"):
        ops.scan(lambda c, x: (c, x), 0.0, None)
    with pytest.raises(ValueError, match="length"):
        ops.scan(lambda c, x: (c, x), 0.0, (np.zeros(2), np.zeros(3)))

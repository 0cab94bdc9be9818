"""What is known of the leaves of an action space."""

import numpy as np
import pytest

from rlweave.components.action_leaves import COUNTABLE, FLOATS, action_leaves
from rlweave.errors import SpaceError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox


def leaf_of(space, **options):
    (leaf,) = action_leaves(space, "test", **options)
    return leaf


@pytest.mark.parametrize("low", [-(2**31), -1, 0, 2**31 - 3])
def test_integers_reach_to_the_ends_of_int32(low):
    leaf = leaf_of(IntBox(low, low + 3, dtype="int64"))
    assert (leaf.categories, leaf.lower, leaf.upper) == (3, low, low + 2)
    assert leaf.changes == (low != 0)


@pytest.mark.parametrize("low", [-(2**31) - 1, 2**31 - 2])
def test_integers_beyond_int32_are_refused(low):
    with pytest.raises(SpaceError, match="int32"):
        leaf_of(IntBox(low, low + 3, dtype="int64"))


def test_components_with_fewer_categories_have_a_table_of_those_allowed():
    leaf = leaf_of(IntBox(low=[1, 0], high=[3, 4], shape=(2,)))
    assert (leaf.size, leaf.categories) == (2, 4)
    np.testing.assert_array_equal(leaf.allowed, [[True, True, False, False], [True] * 4])
    np.testing.assert_array_equal(leaf.counts, [[2], [4]])
    assert leaf_of(IntBox(3, shape=(2,))).allowed is None


def test_floats_have_the_middle_and_half_the_width_of_their_bounds():
    leaf = leaf_of(FloatBox(low=[-1.0, 2.0, -np.inf, -np.inf], high=[3.0, np.inf, -5.0, np.inf], shape=(4,)))
    np.testing.assert_array_equal(leaf.bounded, [True, False, False, False])
    np.testing.assert_array_equal(leaf.center, [1.0, 2.0, -5.0, 0.0])
    np.testing.assert_array_equal(leaf.half_width, [2.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(leaf.own_lower, [-1.0, 0.0, -np.inf, -np.inf])
    np.testing.assert_array_equal(leaf.own_upper, [1.0, np.inf, 0.0, np.inf])
    assert leaf.changes
    assert not leaf_of(FloatBox(shape=(2,))).changes


def test_kinds():
    space = Dict(choice=IntBox(3), free=FloatBox(), switch=BoolBox((2,)))
    leaves = action_leaves(space, "test")
    assert [(leaf.path, leaf.kind, leaf.shape) for leaf in leaves] == [
        ("choice", "categorical", ()),
        ("free", "normal", ()),
        ("switch", "bernoulli", (2,)),
    ]
    assert leaves[2].categories == 2
    with pytest.raises(SpaceError):
        action_leaves(space, "test", COUNTABLE)
    with pytest.raises(SpaceError):
        action_leaves(space, "test", FLOATS)

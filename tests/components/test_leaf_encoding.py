"""Which features a leaf of an observation becomes."""

import numpy as np
import pytest

from rlweave.components.leaf_encoding import MAX_CATEGORIES, check_observations, leaf_encoding
from rlweave.errors import BuildError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, TextBox


@pytest.mark.parametrize(
    ("space", "kind", "low", "sizes", "width"),
    [
        (FloatBox(-2.0, 2.0, shape=(2, 3)), "float", (), (), 6),
        (BoolBox(shape=(3,)), "bool", (), (), 3),
        (IntBox(5), "one_hot", (0,), (5,), 5),
        (IntBox(-2, 3, shape=(2,)), "one_hot", (-2, -2), (5, 5), 10),
        (IntBox(low=[0, 1], high=[2, 4], shape=(2,)), "one_hot", (0, 1), (2, 3), 5),
        (IntBox(0, MAX_CATEGORIES), "one_hot", (0,), (MAX_CATEGORIES,), MAX_CATEGORIES),
        (IntBox(0, MAX_CATEGORIES + 1), "number", (), (), 1),
        (IntBox(shape=(2,)), "number", (), (), 2),
        # bytes are pictures only where all of them have the whole range
        (IntBox(0, 256, shape=(2,), dtype="uint8"), "scale", (0,), (255,), 2),
        (IntBox(high=[256, 3], shape=(2,), dtype="uint8"), "one_hot", (0, 0), (256, 3), 259),
        (IntBox(low=[0, 1], high=[256, 256], shape=(2,), dtype="uint8"), "one_hot", (0, 1), (256, 255), 511),
        # by the whole range of a picture, not by that of each pixel
        (IntBox(10, 21, shape=(2, 2, 1), layout="channels_last"), "scale", (10,), (10,), 4),
        (IntBox(low=[[[1], [0]]], high=[[[3], [9]]], shape=(1, 2, 1), layout="channels_last"), "scale", (0,), (8,), 2),
        (IntBox(7, 8, shape=(1, 1, 1), layout="channels_last"), "scale", (7,), (1,), 1),
        (IntBox(9, shape=(4,), layout="tokens"), "tokens", (), (), 4),
    ],
    ids=str,
)
def test_kinds(space, kind, low, sizes, width):
    found = leaf_encoding(space, "test")
    assert (found.kind, found.low, found.sizes, found.width) == (kind, low, sizes, width)
    assert found.shape == space.shape
    assert found.is_float32 == (kind == "float")
    assert not found.is_identity  # none is a vector of float32


def test_what_is_added_to_find_the_columns():
    mixed = leaf_encoding(IntBox(low=[0, 1], high=[2, 4], shape=(2,)), "test")
    assert mixed.widest == 3
    np.testing.assert_array_equal(mixed.offset, [0, 1])
    np.testing.assert_array_equal(mixed.columns, [0, 1, 3, 4, 5])  # the third of the first is no category
    equal = leaf_encoding(IntBox(-2, 3, shape=(2,)), "test")
    assert (equal.offset, equal.columns) == (-2, None)
    assert leaf_encoding(IntBox(5), "test").offset is None


def test_equal_leaves_have_equal_encodings():
    spaces = [IntBox(low=[0, first], high=[2, 4], shape=(2,)) for first in (1, 1, 2)]
    one, same, other = (leaf_encoding(space, "test") for space in spaces)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_a_vector_is_its_own_features():
    assert leaf_encoding(FloatBox(shape=(3,)), "test").is_identity
    assert not leaf_encoding(FloatBox(shape=(3,), dtype="float64"), "test").is_identity


@pytest.mark.parametrize(
    ("space", "hint"),
    [
        (TextBox(), "hash its words"),
        (IntBox(shape=(2, 2, 1), layout="channels_last"), "no bounds"),
        (FloatBox(dtype="float16"), "declare float32"),
    ],
)
def test_what_is_refused(space, hint):
    with pytest.raises(BuildError, match=hint):
        leaf_encoding(space, "test")


def test_observations_are_checked_leaf_by_leaf():
    check_observations(Dict(a=FloatBox(), b=Dict(c=IntBox(3))), "dqn")
    with pytest.raises(BuildError, match="hash its words") as caught:
        check_observations(Dict(a=FloatBox(), b=Dict(c=TextBox())), "dqn")
    assert "dqn, observation 'b/c'" in str(caught.value)
    with pytest.raises(BuildError, match="hash its words") as caught:
        check_observations(TextBox(), "dqn")
    assert "dqn, observation" in str(caught.value)
    with pytest.raises(BuildError, match="without any leaf"):
        check_observations(Dict(a=Dict()), "dqn")

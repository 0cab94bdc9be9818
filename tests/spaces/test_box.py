"""What all leaves have in common: axes, ranks, layouts, immutability."""

import copy
import pickle

import numpy as np
import pytest

from rlweave.errors import SpaceError
from rlweave.spaces import BATCH, TIME, BoolBox, Dim, FloatBox, IntBox, TextBox, axes_text, from_axes

LEAVES = [FloatBox(-1, 1, shape=(4,)), IntBox(5, shape=(4,)), BoolBox((4,)), TextBox(3, shape=(4,))]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_ranks(leaf):
    assert (leaf.ranks, leaf.has_batch_rank, leaf.has_time_rank, leaf.axes) == (0, False, False, (4,))
    batched = leaf.with_batch_rank()
    assert (batched.ranks, batched.has_batch_rank, batched.axes) == (1, True, (BATCH, 4))
    both = batched.with_time_rank(8)
    assert axes_text(both.axes) == "(T=8, B, 4)"
    assert both.concrete_shape({"B": 3}) == (8, 3, 4)
    assert both.strip_ranks() == leaf
    assert both != batched
    assert leaf.with_time_rank(False) == leaf
    assert type(both) is type(leaf)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_constructor_ranks_equal_the_with_methods(leaf):
    kwargs = {"shape": (4,), "add_batch_rank": 64, "add_time_rank": True}
    bounds = {FloatBox: (-1, 1), IntBox: (5,), BoolBox: (), TextBox: (3,)}[type(leaf)]
    assert type(leaf)(*bounds, **kwargs) == leaf.with_batch_rank(64).with_time_rank(True)


def test_one_is_a_fixed_size_and_true_is_free():
    assert FloatBox(add_batch_rank=1).batch == Dim(("B=1",))
    assert FloatBox(add_batch_rank=np.int64(1)).batch == Dim(("B=1",))
    assert FloatBox(add_batch_rank=True).batch == BATCH
    assert FloatBox(add_batch_rank=np.True_).batch == BATCH


def test_dims_as_ranks():
    folded = FloatBox(shape=(4,), add_batch_rank=Dim(("T", "B")))
    assert folded.concrete_shape({"T": 3, "B": 5}) == (15, 4)
    assert FloatBox(add_time_rank=Dim(("T",), offset=1)).concrete_shape({"T": 3}) == (4,)
    with pytest.raises(SpaceError, match="time alone"):
        FloatBox(add_time_rank=Dim(("T", "B")))
    with pytest.raises(SpaceError, match="the batch"):
        FloatBox(add_batch_rank=TIME)
    with pytest.raises(SpaceError, match="at least 1"):
        FloatBox(add_batch_rank=0)
    with pytest.raises(SpaceError, match="add_batch_rank='B'"):
        FloatBox(add_batch_rank="B")


def test_symbolic_features():
    box = FloatBox(shape=(BATCH, 3))
    assert box.concrete_shape({"B": 7}) == (7, 3)
    assert box.feature_sizes() == {3}
    assert box.low.shape == ()
    with pytest.raises(SpaceError, match="symbolic"):
        _ = box.flat_dim
    with pytest.raises(SpaceError, match="symbolic"):
        _ = box.feature_shape
    assert FloatBox(shape=(Dim(offset=2), 3)).shape == (3, 3)


def test_flat_dim_is_the_product_of_the_features():
    assert FloatBox(shape=(4, 2), add_batch_rank=64).flat_dim == 8
    assert FloatBox().flat_dim == 1
    assert FloatBox(shape=(3, 0)).flat_dim == 0


@pytest.mark.parametrize(
    ("axes", "dtype", "expected"),
    [
        ((TIME, BATCH, 4), "float32", FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True)),
        ((BATCH,), "int32", IntBox(add_batch_rank=True)),
        ((TIME,), "bool", BoolBox(add_time_rank=True)),
        ((), "float64", FloatBox(dtype="float64")),
        ((Dim(("T", "B")), 3), "uint8", IntBox(shape=(3,), dtype="uint8", add_batch_rank=Dim(("T", "B")))),
        ((Dim(("T",), offset=1), BATCH), "float32", FloatBox(add_batch_rank=True, add_time_rank=Dim(("T",), offset=1))),
        ((BATCH, TIME), "float32", FloatBox(shape=(TIME,), add_batch_rank=True)),
        ((4, BATCH), "float32", FloatBox(shape=(4, BATCH))),
        ((TIME, TIME, 2), "float32", FloatBox(shape=(TIME, 2), add_time_rank=True)),
        ((Dim(("B=64",)), 2), "int64", IntBox(shape=(2,), dtype="int64", add_batch_rank=64)),
    ],
)
def test_from_axes(axes, dtype, expected):
    box = from_axes(axes, dtype)
    assert box == expected
    assert box.axes == axes
    assert from_axes(box.axes, box.dtype) == box


def test_from_axes_refuses_unknown_dtypes():
    with pytest.raises(SpaceError, match="complex64"):
        from_axes((4,), "complex64")


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_immutable_and_copyable(leaf):
    with pytest.raises(SpaceError, match="cannot be changed"):
        leaf.shape = (5,)
    with pytest.raises(SpaceError, match="cannot be changed"):
        del leaf.shape
    number = hash(leaf)
    assert copy.deepcopy(leaf) is leaf
    again = pickle.loads(pickle.dumps(leaf))  # noqa: S301
    assert again == leaf
    assert hash(again) == number
    assert "_hash" not in leaf.__getstate__()


def test_bounds_are_read_only_and_not_shared_with_the_caller():
    low = np.array([0.0, 1.0], np.float32)
    box = FloatBox(low, 2)
    low[0] = -5
    np.testing.assert_array_equal(box.low, [0, 1])
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = 3


def test_equality_is_of_kind_shape_dtype_bounds_ranks_and_layout():
    different = [
        FloatBox(shape=(2, 2, 2)),
        FloatBox(shape=(2, 2, 2), dtype="float64"),
        FloatBox(shape=(2, 2, 1)),
        FloatBox(0, shape=(2, 2, 2)),
        FloatBox(high=0, shape=(2, 2, 2)),
        FloatBox(shape=(2, 2, 2), add_batch_rank=True),
        FloatBox(shape=(2, 2, 2), add_time_rank=True),
        FloatBox(shape=(2, 2, 2), layout="channels_last"),
        FloatBox(shape=(2, 2, 2), layout="channels_first"),
        IntBox(shape=(2, 2, 2)),
        IntBox(5, shape=(2, 2, 2)),
        IntBox(1, 5, shape=(2, 2, 2)),
        BoolBox((2, 2, 2)),
        TextBox(shape=(2, 2, 2)),
        TextBox(3, shape=(2, 2, 2)),
    ]
    assert len(set(different)) == len(different)
    assert FloatBox(0, 1, shape=(2,)) == FloatBox([0, 0], [1.0, 1.0])
    assert FloatBox(-0.0) == FloatBox(0.0)
    assert hash(FloatBox(-0.0)) == hash(FloatBox(0.0))
    assert FloatBox(0, 1, shape=(0,)) == FloatBox(shape=(0,))
    assert FloatBox() != "FloatBox"


def test_layout_is_declared_never_guessed():
    for shape in [(84, 84, 4), (4, 84, 84)]:
        assert IntBox(0, 256, shape=shape, dtype="uint8").layout is None
        for layout in ["channels_last", "channels_first"]:
            box = IntBox(0, 256, shape=shape, dtype="uint8", layout=layout)
            assert box.layout == layout
            assert box.with_batch_rank().strip_ranks().layout == layout
    with pytest.raises(SpaceError, match="did you mean 'channels_last'"):
        FloatBox(shape=(2, 2, 3), layout="channel_last")
    with pytest.raises(SpaceError, match="three feature axes"):
        FloatBox(shape=(2, 2), layout="channels_last")


@pytest.mark.parametrize("shape", [(-1,), (2.5,), ("a",), 2.5, None, (True,), "ab"])
def test_shapes_are_whole_numbers(shape):
    with pytest.raises(SpaceError, match="shape="):
        BoolBox(shape)


def test_dtypes():
    with pytest.raises(SpaceError, match="did you mean 'float32'"):
        FloatBox(dtype="float23")
    with pytest.raises(SpaceError, match="FloatBox cannot have this dtype"):
        FloatBox(dtype="int32")
    assert FloatBox(dtype=np.float32) == FloatBox()


def test_repr_is_readable():
    assert repr(FloatBox(shape=4, add_batch_rank=True, add_time_rank=True)) == "FloatBox((T, B, 4) float32)"
    assert repr(FloatBox(-1, [1, 2])) == "FloatBox((2,) float32 in [-1, 1..2])"
    assert repr(IntBox()) == "IntBox(() int32)"
    assert repr(IntBox(-3, 4, add_batch_rank=8)) == "IntBox((B=8,) int32 in [-3, 4))"
    assert repr(BoolBox((2,))) == "BoolBox((2,) bool)"
    assert repr(TextBox(5)) == "TextBox(() object of 0..5 characters)"

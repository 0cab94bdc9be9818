"""Laws of all spaces: sizes, sampling, flattening, membership."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlweave.errors import SpaceError
from rlweave.spaces import BATCH, TIME, Dict, Dim, FloatBox, IntBox, Space, Tuple
from tests.spaces.strategies import quick, spaces


@quick
@given(spaces(), st.sampled_from(["none", "pair"]))
def test_samples_lie_in_their_space(space, size):
    # Fixed ranks of 2 and a pair of twos: fixed and free ranks may be mixed in one space.
    value = space.sample(None if size == "none" or not ranked(space) else (2, 2), rng=3)
    assert all(isinstance(leaf, np.ndarray) for leaf in space.flatten_value(value).values())
    assert space.why_not(value) is None
    assert space.contains(value)


@quick
@given(spaces())
def test_flatten_and_unflatten_are_inverse(space):
    value = space.sample(rng=0)
    flat = space.flatten_value(value)
    assert flat.keys() == space.flatten().keys()
    again = space.unflatten(dict(reversed(flat.items())))
    assert space.flatten_value(again).keys() == flat.keys()
    assert all(a is b for a, b in zip(flat.values(), space.flatten_value(again).values(), strict=True))
    assert repr(again) == repr(value)
    assert space.map(lambda leaf: leaf) == space


@quick
@given(spaces())
def test_json_round_trip_is_exact(space):
    text = json.dumps(space.to_json(), allow_nan=False)
    again = Space.from_json(json.loads(text))
    assert again == space
    assert hash(again) == hash(space)
    assert repr(again) == repr(space)
    assert type(space).from_json(space.to_json()) == space


@quick
@given(spaces())
def test_ranks_come_and_go(space):
    stripped = space.strip_ranks()
    assert not ranked(stripped)
    both = space.with_batch_rank().with_time_rank(7)
    assert both == stripped.with_time_rank(7).with_batch_rank()
    assert both.strip_ranks() == stripped
    assert all(leaf.axes[:2] == (Dim(("T=7",)), BATCH) for leaf in both.flatten().values())


@quick
@given(spaces())
def test_zeros_have_the_shapes_of_samples(space):
    zeros, sample = space.flatten_value(space.zeros()), space.flatten_value(space.sample())
    for path, zero in zeros.items():
        assert (zero.shape, zero.dtype) == (sample[path].shape, sample[path].dtype)
        assert not zero.any()


@quick
@given(spaces())
def test_the_same_seed_gives_the_same_sample(space):
    assert repr(space.sample(rng=5)) == repr(space.sample(rng=np.random.default_rng(5)))


def ranked(space):
    return any(leaf.ranks for leaf in space.flatten().values())


def test_a_generator_is_advanced():
    rng = np.random.default_rng(0)
    assert FloatBox().sample(rng=rng) != FloatBox().sample(rng=rng)


def test_samples_are_new_arrays():
    box = FloatBox(3, 3, shape=(2,))
    box.sample()[:] = 7
    box.zeros()[:] = 7
    assert (box.sample() == 3).all()
    assert (box.zeros() == 0).all()


@pytest.mark.parametrize(
    ("batch", "time", "size", "shape"),
    [
        (False, False, None, ()),
        (False, False, 3, (3,)),
        (False, False, (5, 3), (5, 3)),
        (True, False, None, (1,)),
        (True, False, 3, (3,)),
        (True, False, 0, (0,)),
        (True, False, (5, 3), (3,)),
        (False, True, 5, (5,)),
        (False, True, (5, 3), (5,)),
        (True, True, None, (1, 1)),
        (True, True, (5, 3), (5, 3)),
        (3, False, None, (3,)),
        (3, False, 3, (3,)),
        (True, 5, None, (5, 1)),
        (True, 5, 3, (5, 3)),
        (3, True, 5, (5, 3)),
        (3, 5, None, (5, 3)),
        (3, 5, (5, 3), (5, 3)),
        (True, False, np.int64(3), (3,)),
        (Dim(("T", "B")), False, (5, 3), (15,)),
        (True, Dim(("T",), offset=1), (5, 3), (6, 3)),
    ],
)
def test_sizes(batch, time, size, shape):
    box = FloatBox(shape=(2,), add_batch_rank=batch, add_time_rank=time)
    assert box.sample(size).shape == (*shape, 2)
    assert box.zeros(size).shape == (*shape, 2)
    assert Dict(x=Tuple(box)).sample(size)["x"][0].shape == (*shape, 2)


@pytest.mark.parametrize(
    ("batch", "time", "size"),
    [
        (True, True, 3),
        (3, False, 4),
        (3, False, (1, 4)),
        (3, 5, 3),
        (True, False, -1),
        (True, False, (1, 2, 3)),
        (True, False, (2.5, 2)),
        (False, False, (-1, 2)),
    ],
)
def test_sizes_that_contradict_raise(batch, time, size):
    with pytest.raises(SpaceError, match="size="):
        FloatBox(add_batch_rank=batch, add_time_rank=time).sample(size)


def test_leaves_take_the_ranks_they_have():
    space = Dict(
        step=IntBox(9),
        state=FloatBox(shape=(8,), add_batch_rank=True),
        inputs=FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True),
    )
    shapes = {name: value.shape for name, value in space.sample((5, 3)).items()}
    assert shapes == {"inputs": (5, 3, 4), "state": (3, 8), "step": ()}


def test_symbolic_axes_in_membership():
    space = Tuple(
        FloatBox(add_batch_rank=True, add_time_rank=True),
        FloatBox(add_batch_rank=Dim(("T", "B"))),
        FloatBox(add_time_rank=Dim(("T",), offset=1)),
        FloatBox(shape=(Dim(("B",), 4),)),
    )

    def value(*shapes):
        return tuple(np.zeros(shape, np.float32) for shape in shapes)

    assert space.contains(value((2, 3), (6,), (3,), (12,)))
    assert space.contains(space.sample((2, 3)))
    assert "1: needs axes (T*B,)" in space.why_not(value((2, 3), (5,), (3,), (12,)))
    assert "2: needs axes (T+1,)" in space.why_not(value((2, 3), (6,), (2,), (12,)))
    assert "3: needs axes (4*B,)" in space.why_not(value((2, 3), (6,), (3,), (8,)))
    assert FloatBox(add_time_rank=Dim(("T",), offset=1)).why_not(np.zeros(0, np.float32)).endswith("T+1 cannot be 0")
    assert FloatBox(shape=(Dim(("B",), 4),)).why_not(np.zeros(6, np.float32)).endswith("4*B cannot be 6")
    assert FloatBox(add_batch_rank=3).why_not(np.zeros(4, np.float32)).endswith("B=3 is 4, not 3")
    assert FloatBox(shape=(BATCH, BATCH)).why_not(np.zeros((2, 3), np.float32)) is not None
    assert FloatBox(add_batch_rank=True, add_time_rank=True).contains(np.zeros((0, 0), np.float32))


def test_feature_sizes():
    space = Dict(a=FloatBox(shape=(7, BATCH), add_batch_rank=64), b=Tuple(IntBox(5, shape=(2,)), FloatBox(shape=(0,))))
    assert space.feature_sizes() == {7, 2, 0}
    assert FloatBox(add_time_rank=TIME).feature_sizes() == set()

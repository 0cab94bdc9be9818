"""Conversion of spaces and values at the environment boundary."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym
from hypothesis import given
from hypothesis import strategies as st

from rlweave.errors import SpaceError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, TextBox, Tuple
from rlweave.spaces.gymnasium_spaces import from_gymnasium, to_gymnasium, value_from_gymnasium, value_to_gymnasium
from tests.spaces.strategies import quick, spaces

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)

CONVERSIONS = {
    "floats": (gym.Box(-1, 1, (3,)), FloatBox(-1, 1, shape=(3,))),
    "float64": (gym.Box(-1, 1, (), np.float64), FloatBox(-1, 1)),
    "float16": (gym.Box(-1, 1, (), np.float16), FloatBox(-1, 1)),
    "unbounded": (gym.Box(-np.inf, np.inf, (2,)), FloatBox(shape=(2,))),
    "partly unbounded": (
        gym.Box(np.array([-np.inf, 0, -1]), np.array([np.inf, np.inf, 1]), dtype=np.float64),
        FloatBox([-np.inf, 0, -1], [np.inf, np.inf, 1]),
    ),
    "low == high": (gym.Box(np.array([0.5, 0]), np.array([0.5, 1]), dtype=np.float64), FloatBox([0.5, 0], [0.5, 1])),
    "no elements": (gym.Box(0, 1, (0,)), FloatBox(shape=(0,))),
    "image": (gym.Box(0, 255, (8, 8, 3), np.uint8), IntBox(0, 256, shape=(8, 8, 3), dtype="uint8")),
    "integers": (gym.Box(-3, 7, (2,), np.int64), IntBox(-3, 8, shape=(2,))),
    "narrow integers": (gym.Box(-128, 127, (2,), np.int8), IntBox(-128, 128, shape=(2,))),
    "unbounded integers": (gym.Box(INT64.min, INT64.max, (2,), np.int64), IntBox(shape=(2,))),
    "integers bounded in one dimension": (
        gym.Box(np.array([0, INT64.min]), np.array([5, INT64.max]), dtype=np.int64),
        IntBox([0, INT32.min], [6, INT32.max + 1]),
    ),
    "wide integers": (gym.Box(0, 2**40, (), np.int64), IntBox(0, 2**40 + 1, dtype="int64")),
    "unsigned integers": (gym.Box(0, 2**64 - 1, (), np.uint64), IntBox(0, INT32.max + 1)),
    "no integers": (gym.Box(0, 5, (0,), np.int64), IntBox(shape=(0,))),
    "booleans": (gym.Box(0, 1, (2,), np.bool_), BoolBox((2,))),
    "discrete": (gym.Discrete(3), IntBox(3)),
    "discrete with a start": (gym.Discrete(3, start=-1), IntBox(3)),
    "multi-discrete": (gym.MultiDiscrete([2, 3]), IntBox(high=[2, 3])),
    "multi-discrete alike": (gym.MultiDiscrete([3, 3]), IntBox(high=[3, 3])),
    "multi-discrete with starts": (gym.MultiDiscrete([2, 3], start=[5, -5]), IntBox(high=[2, 3])),
    "multi-discrete of two axes": (gym.MultiDiscrete([[2, 3], [4, 5]]), IntBox(high=[[2, 3], [4, 5]])),
    "multi-binary": (gym.MultiBinary(4), BoolBox((4,))),
    "multi-binary of two axes": (gym.MultiBinary((2, 3)), BoolBox((2, 3))),
    "text": (gym.Text(5, charset="ba"), TextBox(5, 1, "ab")),
    "empty dict": (gym.Dict({}), Dict()),
    "empty tuple": (gym.Tuple(()), Tuple()),
    "nested": (
        gym.Dict({"b": gym.Dict({"x": gym.Discrete(2)}), "a": gym.Tuple((gym.Discrete(32), gym.Box(0, 1, (0,))))}),
        Dict(a=Tuple(IntBox(32), FloatBox(shape=(0,))), b=Dict(x=IntBox(2))),
    ),
}  # fmt: skip

cases = pytest.mark.parametrize(("gym_space", "space"), CONVERSIONS.values(), ids=CONVERSIONS.keys())


@cases
def test_spaces_are_converted(gym_space, space):
    assert from_gymnasium(gym_space) == space


@cases
def test_values_make_the_round_trip(gym_space, space):
    gym_space.seed(0)
    for _ in range(5):
        value = gym_space.sample()
        if isinstance(gym_space, gym.Box) and isinstance(space, IntBox) and space.dtype == "int32":
            value = np.clip(value, INT32.min, INT32.max).astype(value.dtype)  # int64 without bounds is kept in int32
        converted = value_from_gymnasium(gym_space, value)
        assert space.why_not(converted) is None
        back = value_to_gymnasium(gym_space, converted)
        assert gym_space.contains(back)
        flat = space.flatten_value(back)
        for path, original in space.flatten_value(value).items():
            if isinstance(original, str):
                assert flat[path] == original
            else:
                np.testing.assert_allclose(flat[path], original, rtol=1e-6)


@cases
def test_samples_of_our_space_become_values(gym_space, space):
    for seed in range(5):
        assert gym_space.contains(value_to_gymnasium(gym_space, space.sample(rng=seed)))


@cases
def test_values_may_have_leading_axes(gym_space, space):
    batch = space.with_batch_rank().sample(3, rng=0)
    there = value_to_gymnasium(gym_space, batch)
    back = value_from_gymnasium(gym_space, there)
    assert space.with_batch_rank().contains(back)
    for path, leaf in space.flatten_value(back).items():
        expected = space.flatten_value(batch)[path]
        if leaf.dtype == object:
            assert leaf.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(leaf, expected, rtol=1e-3)  # the precision of the float16 case


@quick
@given(spaces(text=False))
def test_gymnasium_round_trip(space):
    space = space.strip_ranks()
    assert from_gymnasium(to_gymnasium(space)) == space


@quick
@given(spaces(text=False), st.integers(0, 99))
def test_values_pass_through_to_gymnasium_unchanged(space, seed):
    space = space.strip_ranks()
    gym_space = to_gymnasium(space)
    value = space.sample(rng=seed)
    there = value_to_gymnasium(gym_space, value)
    assert gym_space.contains(there)
    assert repr(value_from_gymnasium(gym_space, there)) == repr(value)


def test_kinds_of_gymnasium_spaces():
    assert to_gymnasium(IntBox(5)) == gym.Discrete(5)
    assert to_gymnasium(IntBox(high=[2, 3])) == gym.MultiDiscrete([2, 3])
    assert to_gymnasium(IntBox(2, 5)) == gym.Box(2, 4, (), np.int32)
    assert to_gymnasium(BoolBox((3,))) == gym.MultiBinary((3,))
    assert to_gymnasium(FloatBox(0, 1, shape=(2,))) == gym.Box(0, 1, (2,), np.float32)
    assert to_gymnasium(TextBox(5, 1, "ab")) == gym.Text(5, charset="ab")
    assert to_gymnasium(Dict(a=Tuple(IntBox(2)))) == gym.Dict({"a": gym.Tuple([gym.Discrete(2)])})


class TestValues:
    def test_policy_and_memory_hold_indices_the_start_is_added_at_the_boundary(self):
        space = gym.Discrete(3, start=-1)
        assert from_gymnasium(space) == IntBox(3)
        for index in range(3):
            action = value_to_gymnasium(space, np.int32(index))
            assert action == index - 1
            assert isinstance(action, np.int64)
            assert space.contains(action)
            assert value_from_gymnasium(space, action) == index
        np.testing.assert_array_equal(value_to_gymnasium(space, np.int32([0, 2])), [-1, 1])

    def test_far_starts_do_not_overflow(self):
        space = gym.Discrete(3, start=2**40)
        index = value_from_gymnasium(space, 2**40 + 2)
        assert (index, index.dtype) == (2, np.int32)
        assert value_to_gymnasium(space, index) == 2**40 + 2

    def test_multi_discrete_starts_broadcast_over_leading_axes(self):
        space = gym.MultiDiscrete([2, 3], start=[5, -5])
        values = np.array([[[5, -5], [6, -3]]])
        indices = value_from_gymnasium(space, values)
        np.testing.assert_array_equal(indices, [[[0, 0], [1, 2]]])
        np.testing.assert_array_equal(value_to_gymnasium(space, indices), values)

    def test_arrays_are_copied(self):
        for space in [gym.Box(0, 1, (2,)), gym.Discrete(3), gym.MultiDiscrete([2, 2]), gym.MultiBinary(2)]:
            value = np.zeros(space.shape, space.dtype)
            assert not np.shares_memory(value, value_from_gymnasium(space, value))
            converted = value_from_gymnasium(space, value)
            assert not np.shares_memory(converted, value_to_gymnasium(space, converted))

    def test_floats_are_cast_once_to_float32(self):
        value = value_from_gymnasium(gym.Box(-1, 1, (2,), np.float64), np.array([0.1, 0.2]))
        assert value.dtype == np.float32

    def test_float32_bounds_become_exactly_the_float64_bounds(self):
        # float32(0.1) > 0.1: widening alone would step over the bound.
        space = gym.Box(np.array([-0.1, -np.inf]), np.array([0.1, np.inf]), dtype=np.float64)
        ours = from_gymnasium(space)
        for bound in [ours.low[0], ours.high[0]]:
            assert space.contains(value_to_gymnasium(space, np.float32([bound, 3])))

    def test_gymnasium_vector_values(self):
        space = gym.Tuple((gym.Discrete(3, start=1), gym.Text(4), gym.Dict({"x": gym.Box(0, 1, (2,))})))
        batched = gymnasium.vector.utils.batch_space(space, 5)
        value = batched.sample()
        converted = value_from_gymnasium(space, value)
        assert from_gymnasium(space).with_batch_rank(5).why_not(converted) is None
        assert batched.contains(value_to_gymnasium(space, converted))

    def test_blackjack(self):
        env = gymnasium.make("Blackjack-v1")
        observation, _ = env.reset(seed=0)
        space = from_gymnasium(env.observation_space)
        assert isinstance(space, Tuple)
        assert len(space) == 3
        assert space.why_not(value_from_gymnasium(env.observation_space, observation)) is None
        env.close()

    @pytest.mark.parametrize(
        ("space", "value", "message"),
        [
            (gym.Box(INT64.min, INT64.max, (), np.int64), 2**40, "does not fit int32"),
            (gym.Box(0, 255, (2,), np.uint8), [1, 256], "does not fit uint8"),
            (gym.Box(0, 255, (2,), np.uint8), [0.5, 1.0], "float64 cannot be kept as uint8"),
            (gym.Box(0, 1, (2,)), None, "axes that end in"),
            (gym.Box(0, 1, ()), None, "object cannot be kept as float32"),
            (gym.Box(0, 1, (2,)), [0.0, 0.0, 0.0], "axes that end in"),
            (gym.MultiBinary(2), [0, 2], "does not fit bool"),
            (gym.Dict({"a": gym.Discrete(2)}), {"b": 1}, r"\['a'\]"),
            (gym.Dict({"a": gym.Discrete(2)}), 3, "a int"),
            (gym.Tuple([gym.Discrete(2)]), (1, 2), "a tuple of 1"),
            (gym.Dict({"a": gym.Tuple([gym.Box(0, 1, (2,))])}), {"a": (np.zeros(3),)}, "a/0"),
            (gym.Sequence(gym.Discrete(2)), (1,), "cannot be converted: Sequence"),
        ],
    )
    def test_wrong_values_are_refused(self, space, value, message):
        with pytest.raises(SpaceError, match=message):
            value_from_gymnasium(space, value)

    def test_wrong_actions_are_refused(self):
        with pytest.raises(SpaceError, match="float32 cannot be kept as int64"):
            value_to_gymnasium(gym.Discrete(3), np.float32(1))
        with pytest.raises(SpaceError, match="axes that end in"):
            value_to_gymnasium(gym.Box(-1, 1, (2,)), np.zeros(3, np.float32))
        with pytest.raises(SpaceError, match="cannot be converted"):
            value_to_gymnasium(gym.Sequence(gym.Discrete(2)), (1,))


class TestLayout:
    IMAGES = gym.Dict({"camera": gym.Box(0, 255, (84, 84, 4), np.uint8), "speed": gym.Box(-1, 1, (3,))})

    def test_is_never_guessed(self):
        for shape in [(84, 84, 4), (4, 84, 84), (84, 84, 3)]:
            assert from_gymnasium(gym.Box(0, 255, shape, np.uint8)).layout is None

    @pytest.mark.parametrize("layout", ["channels_last", {"camera": "channels_last"}])
    def test_is_declared(self, layout):
        space = from_gymnasium(self.IMAGES, layout=layout)
        assert space["camera"].layout == "channels_last"
        assert space["speed"].layout is None
        nested = from_gymnasium(gym.Tuple([gym.Box(0, 1, (2, 2, 3)), gym.Discrete(2)]), layout="channels_first")
        assert nested[0].layout == "channels_first"
        assert space.map(lambda leaf: leaf._replace(layout=None)) == from_gymnasium(self.IMAGES)

    @pytest.mark.parametrize(
        ("layout", "message"),
        [
            ("channels", "layout is unknown"),
            ({"camera": "last"}, "layout is unknown"),
            ({"kamera": "channels_last"}, "did you mean 'camera'"),
            ({"speed": "channels_last"}, "no image"),
        ],
    )
    def test_errors_teach(self, layout, message):
        with pytest.raises(SpaceError, match=message):
            from_gymnasium(self.IMAGES, layout=layout)

    def test_for_nothing_is_refused(self):
        with pytest.raises(SpaceError, match="no leaf is an image"):
            from_gymnasium(gym.Discrete(3), layout="channels_last")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_gymnasium(gym.Sequence(gym.Discrete(2))), "supported are Box, Discrete"),
        (lambda: from_gymnasium(gym.Dict({"x": gym.Sequence(gym.Discrete(2))})), "where:    x"),
        (lambda: from_gymnasium(gym.Dict({"a/b": gym.Discrete(2)})), "'a/b'"),
        (lambda: from_gymnasium(gym.Dict({1: gym.Discrete(2)})), "key 1"),
        (lambda: from_gymnasium(IntBox(2)), "cannot be converted: IntBox"),
        (lambda: to_gymnasium(FloatBox(add_batch_rank=True)), "strip_ranks"),
        (lambda: to_gymnasium(TextBox()), "longest length"),
        (lambda: to_gymnasium(TextBox(5)), "set of characters"),
        (lambda: to_gymnasium(gym.Discrete(2)), "no space of rlweave"),
    ],
)
def test_errors_teach(make, message):
    with pytest.raises(SpaceError, match=message):
        make()

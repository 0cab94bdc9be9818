"""What actions are to the environment, and what they are to a policy: numbers by hand, and there and back."""

import numpy as np
import pytest

from rlweave.components.action_boundary import ActionBoundary
from rlweave.spaces import FloatBox, IntBox

OWN = np.array([-7.0, -1.0, -0.5, 0.0, 0.5, 1.0, 7.0], np.float32)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (FloatBox(-1.0, 1.0), [-1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0]),
        (FloatBox(-3.0, -1.0), [-3.0, -3.0, -2.5, -2.0, -1.5, -1.0, -1.0]),  # half as wide as 2: only an offset
        (FloatBox(-4.0, 4.0), [-4.0, -4.0, -2.0, 0.0, 2.0, 4.0, 4.0]),  # around 0: only a factor
        (FloatBox(2.0, 10.0), [2.0, 2.0, 4.0, 6.0, 8.0, 10.0, 10.0]),
        (FloatBox(0.1, 0.3, dtype="float64"), [0.1, 0.1, 0.15, 0.2, 0.25, 0.3, 0.3]),
        (FloatBox(-8, 8, dtype="float16"), [-8.0, -8.0, -4.0, 0.0, 4.0, 8.0, 8.0]),
        (FloatBox(low=1.0), [1.0, 1.0, 1.0, 1.0, 1.5, 2.0, 8.0]),  # one bound: an offset, and no factor
        (FloatBox(), OWN),
        (FloatBox(5.0, 5.0), [5.0] * 7),
    ],
    ids=str,
)
def test_floats(space, expected):
    boundary = ActionBoundary(space, "test")
    actions = boundary.to_environment(OWN)
    np.testing.assert_allclose(actions, expected, rtol=1e-3 if space.dtype == "float16" else 1e-6)
    assert actions.dtype == space.dtype
    assert space.with_batch_rank().why_not(actions) is None


@pytest.mark.parametrize(
    "space",
    [FloatBox(-3.0, -1.0), FloatBox(-4.0, 4.0), FloatBox(2.0, 10.0), FloatBox(), FloatBox(0.1, 0.3, shape=(1,))],
)
def test_back_again(space):
    own = np.linspace(-1.0, 1.0, 9, dtype=np.float32).reshape(9, *space.shape)
    boundary = ActionBoundary(space, "test")
    np.testing.assert_allclose(boundary.from_environment(boundary.to_environment(own)), own, atol=1e-6)


def test_a_box_without_width_has_zero():
    boundary = ActionBoundary(FloatBox(5.0, 5.0), "test")
    np.testing.assert_array_equal(boundary.from_environment(np.array([5.0, 5.0], np.float32)), [0.0, 0.0])


def test_dimensions_of_a_box_have_bounds_of_their_own():
    space = FloatBox(low=[-1.0, 0.0, -np.inf], high=[3.0, np.inf, np.inf], shape=(3,))
    boundary = ActionBoundary(space, "test")
    actions = boundary.to_environment(np.array([[0.5, 0.5, -9.0], [-2.0, -2.0, 9.0]], np.float32))
    np.testing.assert_allclose(actions, [[2.0, 0.5, -9.0], [-1.0, 0.0, 9.0]])


@pytest.mark.parametrize(("low", "dtype"), [(0, "int64"), (-3, "int32"), (2, "int8")])
def test_integers_begin_where_the_space_does(low, dtype):
    space = IntBox(low, low + 3, dtype=dtype)
    boundary = ActionBoundary(space, "test")
    own = np.arange(3, dtype=np.int32)
    actions = boundary.to_environment(own)
    np.testing.assert_array_equal(actions, [low, low + 1, low + 2])
    assert actions.dtype == dtype
    np.testing.assert_array_equal(boundary.from_environment(actions), own)
    assert boundary.from_environment(actions).dtype == np.int32

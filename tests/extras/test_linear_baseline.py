"""The linear feature baseline, against least squares by another solver."""

import numpy as np
import pytest

from rlweave.errors import ConfigError
from rlweave.extras.linear_baseline import LinearBaseline
from rlweave.spaces import BoolBox, Dict, FloatBox
from rlweave.testing import ComponentTest

SPACES = {
    "observations": Dict(a=FloatBox(shape=(2,)), b=FloatBox()).with_batch_rank().with_time_rank(),
    "rewards": FloatBox(add_batch_rank=True, add_time_rank=True),
    "terminated": BoolBox(add_batch_rank=True, add_time_rank=True),
    "truncated": BoolBox(add_batch_rank=True, add_time_rank=True),
}


def rollout(steps=40, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    observations = {"a": rng.normal(size=(steps, columns, 2)), "b": rng.normal(size=(steps, columns))}
    ended = rng.random((2, steps, columns)) < 0.1
    return (
        {name: value.astype(np.float32) for name, value in observations.items()},
        rng.normal(size=(steps, columns)).astype(np.float32),
        ended[0],
        ended[1],
    )


def looped(observations, rewards, terminated, truncated, discount, column):
    """Advantages of one column, not normalized: returns backwards, features forwards, `np.linalg.lstsq`."""
    steps = len(rewards)
    returns, following = np.zeros(steps), 0.0
    for t in reversed(range(steps)):
        if terminated[t, column] or truncated[t, column]:
            following = 0.0
        returns[t] = following = rewards[t, column] + discount * following
    features, time = [], 0
    for t in range(steps):
        numbers = [*observations["a"][t, column], observations["b"][t, column]]
        x = time / 100
        features.append([*numbers, *(n * n for n in numbers), 1.0, x, x**2, x**3])
        time = 0 if terminated[t, column] or truncated[t, column] else time + 1
    matrix = np.array(features, np.float64)
    # the ridge as rows of its own: |F c - y|^2 + 1e-5 |c|^2
    padded = np.concatenate([matrix, np.sqrt(1e-5) * np.eye(matrix.shape[1])])
    solution = np.linalg.lstsq(padded, np.concatenate([returns, np.zeros(matrix.shape[1])]), rcond=None)[0]
    return returns - matrix @ solution


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_advantages_are_what_least_squares_leaves_of_the_returns(backend):
    arguments = rollout()
    found = ComponentTest(LinearBaseline(0.9, normalize=False), SPACES, backend).test("advantages", *arguments)
    assert found.shape == (40, 3)
    for column in range(3):
        np.testing.assert_allclose(found[:, column], looped(*arguments, 0.9, column), atol=1e-5)


def test_normalized_advantages_have_mean_0_and_deviation_1_in_each_column():
    plain = ComponentTest(LinearBaseline(0.9, normalize=False), SPACES).test("advantages", *rollout())
    found = ComponentTest(LinearBaseline(0.9), SPACES).test("advantages", *rollout())
    np.testing.assert_allclose(found, (plain - plain.mean(0)) / plain.std(0), rtol=1e-4, atol=1e-5)


def test_what_is_explained_wholly_is_no_advantage():
    """Rewards that are linear in the state, discount 0: nothing is left, and nothing is blown up."""
    observations, _, terminated, truncated = rollout()
    rewards = (2.0 * observations["a"][..., 0] - 3.0 * observations["b"] + 1.0).astype(np.float32)
    plain = ComponentTest(LinearBaseline(0.0, normalize=False), SPACES)
    np.testing.assert_allclose(plain.test("advantages", observations, rewards, terminated, truncated), 0.0, atol=1e-4)
    nothing = np.zeros_like(rewards)
    found = ComponentTest(LinearBaseline(0.9), SPACES).test("advantages", observations, nothing, terminated, truncated)
    np.testing.assert_array_equal(found, 0.0)


def test_columns_are_tasks_of_their_own():
    observations, rewards, terminated, truncated = rollout()
    test = ComponentTest(LinearBaseline(0.9), SPACES)
    before = test.test("advantages", observations, rewards, terminated, truncated)
    rewards[:, 1] += np.linspace(0, 5, 40, dtype=np.float32) ** 2
    after = test.test("advantages", observations, rewards, terminated, truncated)
    np.testing.assert_array_equal(before[:, [0, 2]], after[:, [0, 2]])
    assert not np.allclose(before[:, 1], after[:, 1])


def test_a_discount_is_a_fraction():
    with pytest.raises(ConfigError, match="discount is out of range"):
        LinearBaseline(1.5)

"""Reward normalization against a loop over steps in float64."""

import numpy as np
import pytest

from rlweave.components import RewardNormalization
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import ComponentTest

ROLLOUT = {"add_batch_rank": 3, "add_time_rank": True}


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_rewards_are_divided_by_the_deviation_of_returns_that_go_on_from_rollout_to_rollout(backend):
    spaces = {"rewards": FloatBox(**ROLLOUT), "terminated": BoolBox(**ROLLOUT), "truncated": BoolBox(**ROLLOUT)}
    test = ComponentTest(RewardNormalization(0.9, clip=5.0), spaces, backend)
    rng = np.random.default_rng(0)
    returns, seen = np.zeros(3), []
    for _ in range(3):
        rewards = (7.0 * rng.normal(size=(6, 3)) + 2.0).astype(np.float32)
        terminated, truncated = rng.random((2, 6, 3)) < 0.2
        test.test("update", rewards, terminated, truncated)
        for t in range(6):
            returns = 0.9 * returns + rewards[t]
            seen.append(returns.copy())
            returns = returns * ~(terminated[t] | truncated[t])
        expected = np.clip(rewards / np.sqrt(np.var(seen) + 1e-8), -5.0, 5.0)
        np.testing.assert_allclose(test.test("call", rewards), expected, rtol=2e-5)


def test_before_any_update_rewards_stay_as_they_are_and_constant_ones_are_finite():
    spaces = {"rewards": FloatBox(**ROLLOUT), "terminated": BoolBox(**ROLLOUT), "truncated": BoolBox(**ROLLOUT)}
    test = ComponentTest(RewardNormalization(0.9), spaces, "numpy")
    rewards, no = np.full((4, 3), 2.0, np.float32), np.zeros((4, 3), np.bool_)
    np.testing.assert_array_equal(test.test("call", rewards), rewards)
    test.test("update", 0.0 * rewards, no, no)
    np.testing.assert_array_equal(test.test("call", 0.0 * rewards), 0.0 * rewards)
    assert np.isfinite(test.test("call", rewards)).all()

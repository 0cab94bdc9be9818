"""Environments whose tasks change on request: sine waves and goals."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlweave.envs import PointNavigation, SineTasks, make_env


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # unbounded boxes are meant
@pytest.mark.parametrize("env_id", ["rlweave/SineTasks-v0", "rlweave/PointNavigation-v0"])
def test_they_pass_gymnasiums_own_check(env_id: str) -> None:
    check_env(gymnasium.make(env_id).unwrapped)


def test_a_sine_task_stays_until_another_one_is_asked_for() -> None:
    env = SineTasks(points=30)
    waves = []
    for episode in range(4):
        x, _ = env.reset(seed=1 if episode == 0 else None, options={"new_task": True} if episode == 2 else None)
        xs, ys = [], []
        for step in range(30):
            xs.append(float(x[0]))
            x, reward, terminated, truncated, info = env.step(np.array([0.5], np.float32))
            ys.append(float(info["target"][0]))
            assert reward == pytest.approx(-((0.5 - ys[-1]) ** 2), rel=1e-5)
            assert (terminated, truncated) == (False, step == 29)
        # y = a sin x + b cos x exactly
        basis = np.stack([np.sin(xs), np.cos(xs)], axis=1)
        wave, residual, *_ = np.linalg.lstsq(basis, np.array(ys), rcond=None)
        assert residual[0] < 1e-8
        waves.append(wave)
    np.testing.assert_allclose(waves[0], waves[1], atol=1e-4)
    np.testing.assert_allclose(waves[2], waves[3], atol=1e-4)
    assert not np.allclose(waves[1], waves[2], atol=1e-2)


def test_many_sine_tasks_are_drawn_at_once_from_the_whole_distribution() -> None:
    x, y = SineTasks.draw(np.random.default_rng(0), 2000, 12)
    assert x.shape == y.shape == (12, 2000, 1)
    assert x.dtype == y.dtype == np.float32
    assert (x.min(), x.max()) == (pytest.approx(-5, abs=0.01), pytest.approx(5, abs=0.01))
    amplitudes, phases = [], []
    for task in range(2000):
        basis = np.stack([np.sin(x[:, task, 0]), np.cos(x[:, task, 0])], axis=1)
        a, b = np.linalg.lstsq(basis, y[:, task, 0], rcond=None)[0]
        amplitudes.append(np.hypot(a, b))
        phases.append(np.arctan2(-b, a))
    for values, low, high in ((amplitudes, 0.1, 5.0), (phases, 0.0, np.pi)):
        assert min(values) == pytest.approx(low, abs=0.05)
        assert max(values) == pytest.approx(high, abs=0.05)
        assert np.mean(values) == pytest.approx((low + high) / 2, abs=0.1)


def test_a_point_moves_a_tenth_towards_a_goal_it_cannot_see() -> None:
    env = PointNavigation(horizon=50)
    position, info = env.reset(seed=3)
    goal = info["goal"]
    assert position.tolist() == [0.0, 0.0]
    assert np.abs(goal).max() <= 0.5
    position, reward, terminated, truncated, info = env.step(np.array([2.0, -0.5], np.float32))
    np.testing.assert_allclose(position, [0.1, -0.05], atol=1e-7)
    assert reward == pytest.approx(-((0.1 - goal[0]) ** 2) - (-0.05 - goal[1]) ** 2)
    assert not terminated
    assert not truncated
    assert not info
    for _ in range(20):
        position, reward, terminated, truncated, _ = env.step(((goal - position) * 10).astype(np.float32))
        if terminated:
            break
    assert terminated
    assert reward > -1e-4
    np.testing.assert_array_equal(env.reset()[1]["goal"], goal)
    assert not np.array_equal(env.reset(options={"new_task": True})[1]["goal"], goal)


def test_each_row_of_a_vector_environment_has_a_task_of_its_own_that_outlives_episodes() -> None:
    with make_env("rlweave/PointNavigation-v0", 3, env_kwargs={"horizon": 2}, seed=0) as env:
        still = np.zeros((3, 2), np.float32)
        env.reset(options={"new_task": True})
        first = [env.step(still).rewards for _ in range(5)]
        assert len(np.unique(first[0])) == 3
        assert all(np.array_equal(rewards, first[0]) for rewards in first)
        env.reset()
        np.testing.assert_array_equal(env.step(still).rewards, first[0])
        env.reset(options={"new_task": True})
        assert not np.array_equal(env.step(still).rewards, first[0])

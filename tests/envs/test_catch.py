from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlweave.envs import Catch, make_env
from rlweave.spaces import IntBox


@pytest.mark.parametrize("seed", range(8))
def test_a_ball_falls_and_is_caught_or_not(seed: int) -> None:
    env = Catch()
    image, _ = env.reset(seed=seed)
    (ball,) = np.flatnonzero(image[0, :, 0])
    assert image.shape == (8, 8, 1)
    assert np.unique(image).tolist() == [0, 255]
    assert np.flatnonzero(image[7, :, 0]).tolist() == [4]
    paddle, rewards = 4, []
    for row in range(1, 8):
        action = 1 + int(np.sign(ball - paddle))
        image, reward, terminated, truncated, _ = env.step(action)
        paddle += action - 1
        rewards.append(reward)
        assert image[row, ball, 0] == 255
        assert np.flatnonzero(image[7, :, 0]).tolist() == sorted({paddle} | ({ball} if row == 7 else set()))
        assert terminated == (row == 7)
        assert not truncated
    assert rewards == [0.0] * 6 + [1.0]


def test_the_paddle_stays_inside_and_may_miss() -> None:
    env = Catch(rows=4, columns=3)
    image, _ = env.reset(seed=0)
    while image[0, 2, 0] == 0:
        image, _ = env.reset()
    results = [env.step(0) for _ in range(3)]
    assert np.flatnonzero(results[1][0][3, :, 0]).tolist() == [0]
    assert [result[1] for result in results] == [0.0, 0.0, -1.0]
    assert env.render() == "...\n...\n...\n#.#"


def test_balls_fall_in_every_column() -> None:
    env = Catch()
    env.reset(seed=0)
    columns = [int(np.flatnonzero(env.reset()[0][0, :, 0])[0]) for _ in range(400)]
    counts = np.bincount(columns, minlength=8)
    assert counts.min() > 25, "50 are expected in each; 25 is 3.8 standard deviations below"


def test_in_a_vector_environment() -> None:
    with make_env("rlweave/Catch-v0", 4, seed=0) as env:
        assert env.observation_space == IntBox(0, 256, shape=(8, 8, 1), dtype="uint8")
        env.reset()
        for _ in range(70):
            env.step(env.sample_actions())
        assert env.tracker.episodes == 40
        assert {episode.length for episode in env.tracker.recent} == {7}
        assert {episode.episode_return for episode in env.tracker.recent} == {-1.0, 1.0}


def test_it_is_a_good_gymnasium_environment() -> None:
    check_env(gymnasium.make("rlweave/Catch-v0", render_mode="ansi").unwrapped, skip_render_check=True)

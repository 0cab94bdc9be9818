"""Atari games: the standard preprocessing, and what is counted is the game and not what the learner gets."""

import functools

import numpy as np
import pytest

from rlweave.envs import evaluate, make_env
from rlweave.errors import ConfigError

pytest.importorskip("ale_py")


def played(game, steps, training, **options):
    """Results of steps with random actions, the same for all."""
    with make_env(f"ALE/{game}-v5", 2, seed=3, training=training, env_kwargs=options) as env:
        observations, results = [env.reset()], []
        rng = np.random.default_rng(0)
        for _ in range(steps):
            results.append(env.step(rng.integers(0, 4, 2).astype(np.int32)))
            observations.append(results[-1].observations)
    return observations, results


def test_observations_are_the_last_four_frames():
    observations, results = played("Pong", 30, training=False)
    assert observations[0].shape == (2, 4, 84, 84)
    assert observations[0].dtype == np.uint8
    for before, result, after in zip(observations, results, observations[1:], strict=False):
        going_on = ~result.episode_start
        np.testing.assert_array_equal(after[going_on][:, :3], before[going_on][:, 1:])
        np.testing.assert_array_equal(result.next_observations, after)


def test_training_has_clipped_rewards_and_ends_with_lives_and_both_count_the_game():
    _, plain = played("Breakout", 400, training=False, max_num_frames_per_episode=2000)
    _, learning = played("Breakout", 400, training=True, max_num_frames_per_episode=2000)
    lost = np.zeros(2, int)
    for game, seen in zip(plain, learning, strict=True):
        np.testing.assert_array_equal(seen.rewards, np.sign(game.rewards))
        np.testing.assert_array_equal(seen.next_observations, game.next_observations)
        np.testing.assert_array_equal(seen.truncated, game.truncated)
        np.testing.assert_array_equal(seen.episode_start, game.episode_start)
        assert seen.episodes == game.episodes
        assert (seen.terminated | ~game.terminated).all()  # whatever ends the game ends its last life
        only_a_life = seen.terminated & ~game.terminated
        np.testing.assert_array_equal(seen.observations[only_a_life], seen.next_observations[only_a_life])
        lost += only_a_life
    assert (lost >= 4).all()
    assert sum(len(result.episodes) for result in plain) >= 2


def test_lives_and_clipping_are_options():
    _, results = played("Breakout", 150, training=True, episodic_life=False, reward_clipping=False)
    _, game = played("Breakout", 150, training=False)
    for own, other in zip(results, game, strict=True):
        np.testing.assert_array_equal(own.rewards, other.rewards)
        np.testing.assert_array_equal(own.terminated, other.terminated)
    with pytest.raises(ConfigError, match="episodic_life is true or false"):
        make_env("ALE/Breakout-v5", env_kwargs={"episodic_life": "no"})
    with pytest.raises(ConfigError, match="autoreset mode"):
        make_env("ALE/Breakout-v5", env_kwargs={"autoreset_mode": "Disabled"})


def test_an_evaluation_counts_the_games_own_score():
    # whoever does nothing loses every point of Pong
    factory = functools.partial(make_env, "ALE/Pong-v5", 2)
    evaluation = evaluate(lambda observations, _: np.zeros(len(observations), np.int32), factory, 2, seed=0)
    assert evaluation.returns.tolist() == [-21.0, -21.0]
    assert (evaluation.lengths > 700).all()


def test_the_plain_game_is_there_when_asked_for():
    with make_env("ALE/Pong-v5", 1, "sync") as env:
        assert env.reset().shape == (1, 210, 160, 3)
        assert env.image_layout is None

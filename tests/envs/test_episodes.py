from __future__ import annotations

import functools
import gc
import math
import tracemalloc

import numpy as np
import pytest

from rlweave.envs import EVALUATION_WORKER, Episode, EpisodeTracker, StepResult, VectorEnv, evaluate, make_env
from rlweave.errors import ConfigError, EnvError
from tests.envs.faulty_envs import Counting, FixedReturn

NO, YES = np.array([False, False]), np.array([False, True])


def test_tracker_counts_steps_and_episodes() -> None:
    tracker = EpisodeTracker(2)
    assert math.isnan(tracker.mean_return())
    assert math.isnan(tracker.mean_length())
    assert tracker.update(np.array([1.0, 2.0]), NO, NO) == ()
    assert tracker.update(np.array([1.0, 2.5]), YES, NO) == (Episode(1, 4.5, 2, True),)
    assert tracker.update(np.array([1.0, 7.0]), NO, YES) == (Episode(1, 7.0, 1, False),)
    assert tracker.update(np.array([0.5, 0.0]), ~NO, ~NO) == (Episode(0, 3.5, 4, True), Episode(1, 0.0, 1, True))
    assert (tracker.steps, tracker.episodes) == (8, 4)
    assert tracker.mean_return() == (4.5 + 7.0 + 3.5 + 0.0) / 4
    assert tracker.mean_length() == 2.0


def test_tracker_leaves_reset_rows_out() -> None:
    tracker = EpisodeTracker(2)
    tracker.update(np.array([1.0, 100.0]), NO, YES, valid=~YES)
    assert tracker.current_returns.tolist() == [1.0, 0.0]
    assert tracker.current_lengths.tolist() == [1, 0]
    assert (tracker.steps, tracker.episodes) == (1, 0)


def test_tracker_forgets_abandoned_episodes_only() -> None:
    tracker = EpisodeTracker(2)
    tracker.update(np.array([1.0, 2.0]), NO, YES)
    tracker.abandon()
    assert tracker.current_returns.tolist() == [0.0, 0.0]
    assert (tracker.steps, tracker.episodes, len(tracker.recent)) == (2, 1, 1)


def test_long_runs_take_constant_memory() -> None:
    with make_env(functools.partial(Counting, 2), 4, seed=0) as env:
        env.reset()
        actions = np.zeros(4, np.int32)
        sizes = []
        for _ in range(4):
            for _ in range(300):
                env.step(actions)
            gc.collect()
            if not sizes:
                tracemalloc.start()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert env.tracker.episodes == 2400
    assert len(env.tracker.recent) == 100
    assert sizes[2] - sizes[1] < 2000


def two_envs(*, seed: int | None, worker: int) -> VectorEnv:
    return make_env(
        [functools.partial(FixedReturn, 2, 0.0), functools.partial(FixedReturn, 100, 1.0)], seed=seed, worker=worker
    )


def always_zero(observations: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
    return np.zeros(len(observations), np.int32)


def test_evaluation_does_not_favour_short_episodes() -> None:
    """Fault 35."""
    evaluation = evaluate(always_zero, two_envs, 10, seed=0)
    assert evaluation.mean_return == 0.5
    assert evaluation.mean_length == 51.0
    assert evaluation.returns.tolist() == [0.0] * 5 + [1.0] * 5
    assert evaluation.lengths.tolist() == [2] * 5 + [100] * 5
    assert [episode.env for episode in evaluate(always_zero, two_envs, 3, seed=0).episodes] == [0, 0, 1]
    assert evaluate(always_zero, two_envs, 1, seed=0).returns.tolist() == [0.0]
    with pytest.raises(ConfigError, match="at least 1"):
        evaluate(always_zero, two_envs, 0)


def test_evaluation_does_not_wait_for_ever() -> None:
    with pytest.raises(EnvError, match=r"not ended after 50 steps(.|\n)*environment 1, step 50 of its episode"):
        evaluate(always_zero, two_envs, 2, seed=0, max_episode_steps=50)
    assert evaluate(always_zero, two_envs, 2, seed=0, max_episode_steps=100).lengths.tolist() == [2, 100]
    # an episode that nobody waits for may last
    assert evaluate(always_zero, two_envs, 1, seed=0, max_episode_steps=2).lengths.tolist() == [2]
    with pytest.raises(ConfigError, match="at least 1"):
        evaluate(always_zero, two_envs, 1, max_episode_steps=0)


def test_evaluation_tells_episode_starts_and_closes() -> None:
    made: list[VectorEnv] = []
    starts: list[list[bool]] = []
    steps: list[list[float]] = []

    def factory(*, seed: int | None, worker: int) -> VectorEnv:
        made.append(make_env(functools.partial(Counting, 3), 2, seed=seed, worker=worker))
        return made[-1]

    def act(observations: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
        starts.append(episode_start.tolist())
        steps.append(observations[:, 1].tolist())
        return np.zeros(2, np.int32)

    evaluation = evaluate(act, factory, 4, seed=0)
    assert steps == [[0, 0], [1, 1], [2, 2]] * 2
    assert starts == [[step == 0 for step in row] for row in steps]
    assert evaluation.returns.tolist() == [6.0] * 4
    assert made[0].worker == EVALUATION_WORKER
    with pytest.raises(Exception, match="closed"):
        made[0].reset()


def test_evaluation_and_training_share_no_seed() -> None:
    seen: list[np.ndarray] = []

    def act(observations: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
        seen.append(observations)
        return np.zeros(len(observations), np.int32)

    evaluate(act, functools.partial(make_env, "CartPole-v1", 4), 1, seed=7)
    training = np.concatenate([make_env("CartPole-v1", 4, seed=7, worker=worker).reset() for worker in range(4)])
    assert not {row.tobytes() for row in seen[0]} & {row.tobytes() for row in training}


def test_step_results_have_the_documented_fields() -> None:
    assert StepResult._fields == (
        "observations",
        "rewards",
        "terminated",
        "truncated",
        "next_observations",
        "valid",
        "episode_start",
        "infos",
        "episodes",
    )

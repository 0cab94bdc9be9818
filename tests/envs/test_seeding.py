"""One seed decides everything; different runs, workers and environments share nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.envs import EVALUATION_WORKER, VectorEnv, make_env
from rlweave.envs.seeding import action_seed, sub_env_seeds, vector_seed
from tests.envs.faulty_envs import Counting


def first_observations(seed: int | None, worker: int = 0, num_envs: int = 8, **options: Any) -> list[bytes]:
    with make_env("CartPole-v1", num_envs, seed=seed, worker=worker, **options) as env:
        return [row.tobytes() for row in env.reset()]


def play(env: VectorEnv, steps: int = 30) -> list[bytes]:
    """Plays random actions and returns all that happened."""
    with env:
        seen = [env.reset()]
        for _ in range(steps):
            actions = env.sample_actions()
            seen += [actions, env.step(actions).next_observations]
    return [array.tobytes() for array in seen]


def test_environments_workers_and_runs_share_no_first_observation() -> None:
    """Fault 27."""
    runs = [[row for worker in range(4) for row in first_observations(seed, worker)] for seed in (0, 1)]
    assert len(set(runs[0])) == len(set(runs[1])) == 32
    assert not set(runs[0]) & set(runs[1])


@pytest.mark.parametrize("vectorization", ["sync", "vector_entry_point"])
def test_a_seed_repeats_exactly_random_actions_included(vectorization: str) -> None:
    """Fault 27."""
    first, again, other = (play(make_env("CartPole-v1", 4, vectorization, seed=seed)) for seed in (5, 5, 6))
    assert first == again
    assert all(mine != theirs for mine, theirs in zip(first[::2], other[::2], strict=True))
    assert first[1::2] != other[1::2]


def test_workers_with_one_seed_act_differently() -> None:
    actions = [make_env("CartPole-v1", 32, seed=0, worker=worker).sample_actions().tobytes() for worker in range(4)]
    assert len(set(actions)) == 4


def test_all_kinds_seed_their_environments_alike() -> None:
    expected = first_observations(3, 2)
    assert first_observations(3, 2, autoreset="next_step") == expected
    assert first_observations(3, 2, vectorization="async", num_envs=2) == expected[:2]
    assert first_observations(3, 2, num_envs=3) == expected[:3], "the number of siblings does not matter"


def test_parts_of_the_environments_of_a_worker_have_their_seeds() -> None:
    expected = first_observations(3, 2, 4)
    for kind in ("sync", "async"):
        with make_env("CartPole-v1", 2, kind, seed=3, worker=2) as env:
            env.first = 2
            assert [row.tobytes() for row in env.reset()] == expected[2:]
    assert len({vector_seed(3, worker, first) for worker in range(2) for first in range(4)}) == 8


def test_a_native_vector_environment_gets_a_seed_of_each_worker() -> None:
    rows = [row for w in range(4) for row in first_observations(0, w, vectorization="vector_entry_point")]
    assert len(set(rows)) == 32


@pytest.mark.parametrize("autoreset", [None, "same_step", "disabled"])
def test_a_fresh_reset_goes_on_and_does_not_repeat(autoreset: str | None) -> None:
    with make_env(Counting, 2, seed=0, autoreset=autoreset) as env:
        numbers = [env.reset()[:, 2].tolist() for _ in range(3)]
        for _ in range(6):
            numbers.append(env.step(np.zeros(2, np.int32)).observations[:, 2].tolist())  # noqa: PERF401
        assert len({number for row in numbers for number in row}) == 2 * (3 + 2)

        again = env.reset(seed=0)
        assert again[:, 2].tolist() == numbers[0]
        samples = [env.sample_actions().tolist() for _ in range(10)]
        env.reset(seed=0)
        assert [env.sample_actions().tolist() for _ in range(10)] == samples


def test_without_a_seed_runs_differ_but_can_be_repeated() -> None:
    with make_env(Counting, 2) as env:
        first = env.reset()
        assert first_observations(env.seed) != first_observations(None)
        assert (env.reset(seed=env.seed)[:, 2] == first[:, 2]).all()
    assert first_observations(None) != first_observations(None)


def test_no_two_streams_share_a_seed() -> None:
    workers = [*range(20), EVALUATION_WORKER]
    seeds = [s for seed in range(10) for worker in workers for s in sub_env_seeds(seed, worker, 8)]
    seeds += [f(seed, worker) for seed in range(10) for worker in workers for f in (action_seed, vector_seed)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)

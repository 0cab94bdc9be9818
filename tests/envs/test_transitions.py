"""Every kind of vector environment and every autoreset mode yields one list of transitions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlweave.envs import Episode, VectorEnv, make_env
from rlweave.envs.gymnasium_vector import GymnasiumVectorEnv
from rlweave.envs.seeding import sub_env_seeds
from rlweave.errors import EnvError
from tests.envs.faulty_envs import Counting, Mutating

NUM_ENVS, STEPS, SEED = 2, 8, 3
Row = tuple[Any, ...]


class Wrapped(gymnasium.vector.VectorWrapper):
    """Hides from the adapter that the environment can reset single rows."""


def wrapped(factory: Callable[[], gymnasium.Env], mode: AutoresetMode) -> gymnasium.vector.VectorEnv:
    return Wrapped(SyncVectorEnv([factory] * NUM_ENVS, autoreset_mode=mode))


KINDS: dict[str, Callable[[Callable[[], gymnasium.Env]], VectorEnv]] = {
    "sync": lambda f: make_env(f, NUM_ENVS, seed=SEED),
    "async": lambda f: make_env(f, NUM_ENVS, "async", seed=SEED),
    **{
        f"{kind}-{mode}": functools.partial(
            lambda f, kind, mode: make_env(f, NUM_ENVS, kind, seed=SEED, autoreset=mode), kind=kind, mode=mode
        )
        for kind in ("sync", "async")
        for mode in ("next_step", "same_step", "disabled")
    },
    **{
        f"wrapped-{mode.name.lower()}": functools.partial(
            lambda f, mode: make_env(wrapped(f, mode), seed=SEED), mode=mode
        )
        for mode in AutoresetMode
    },
}


def act(observations: np.ndarray) -> np.ndarray:
    """A policy that is a function of the observation, as the rows of NEXT_STEP environments fall behind."""
    return (100 * observations[:, 2]).astype(np.int32) % 2


def collect(env: VectorEnv, steps: int) -> tuple[list[list[Row]], list[list[Episode]]]:
    """Returns the transitions and episodes of each sub-environment."""
    rows: list[list[Row]] = [[] for _ in range(env.num_envs)]
    episodes: list[list[Episode]] = [[] for _ in range(env.num_envs)]
    observations = env.reset()
    starts = np.ones(env.num_envs, bool)
    for _ in range(steps):
        actions = act(observations)
        result = env.step(actions)
        for i in np.flatnonzero(result.valid):
            rows[i].append(
                (
                    *observations[i].tolist(),
                    int(actions[i]),
                    float(result.rewards[i]),
                    bool(result.terminated[i]),
                    bool(result.truncated[i]),
                    *result.next_observations[i].tolist(),
                    bool(starts[i]),
                )
            )
            ended = result.terminated[i] or result.truncated[i]
            assert result.infos[i] == {"step": result.next_observations[i][1]}
            assert ended or (result.next_observations[i] == result.observations[i]).all()
        for episode in result.episodes:
            episodes[episode.env].append(episode)
        observations, starts = result.observations, result.episode_start
        for i in np.flatnonzero(starts):
            assert env.infos[i]["episode"] == observations[i][0], "the info of the reset comes with its observation"
    return rows, episodes


def by_hand(factory: Callable[[], gymnasium.Env], steps: int) -> tuple[list[list[Row]], list[list[Episode]]]:
    """The same from bare environments, one at a time, in the plainest way."""
    all_rows, all_episodes = [], []
    for index, seed in enumerate(sub_env_seeds(SEED, 0, NUM_ENVS)):
        env = factory()
        rows, episodes = [], []
        observation = env.reset(seed=seed)[0].astype(np.float32)
        start, total, length = True, 0.0, 0
        for _ in range(steps):
            action = int(act(observation[None])[0])
            following, reward, terminated, truncated, _ = env.step(action)
            following = following.astype(np.float32)
            rows.append(
                (
                    *observation.tolist(),
                    action,
                    float(np.float32(reward)),
                    terminated,
                    truncated,
                    *following.tolist(),
                    start,
                )
            )
            start, total, length, observation = terminated or truncated, total + reward, length + 1, following
            if start:
                episodes.append(Episode(index, total, length, terminated))
                total, length = 0.0, 0
                observation = env.reset()[0].astype(np.float32)
        all_rows.append(rows)
        all_episodes.append(episodes)
    return all_rows, all_episodes


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_yields_the_same_transitions_and_episodes(kind: str) -> None:
    """Fault 5 (and 6, 11): a 3-step environment for 8 vector steps."""
    factory = functools.partial(Counting, 3)
    expected, expected_episodes = by_hand(factory, STEPS)
    with KINDS[kind](factory) as env:
        rows, episodes = collect(env, STEPS)
        assert rows == expected
        assert episodes == expected_episodes
        assert env.tracker.steps == NUM_ENVS * STEPS
        assert env.tracker.episodes == NUM_ENVS * (STEPS // 3)
        assert env.tracker.current_lengths.tolist() == [STEPS % 3] * NUM_ENVS
    first, last = rows[0][0], rows[0][2]
    assert first[:2] == (1.0, 0.0), "the first observation is the environment's, not zeros"
    assert first[2] != 0.0
    assert last[-4:-1] == (1.0, 3.0, first[2]), "the final observation is of the episode that ended"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("async")])
@pytest.mark.parametrize("terminates", [False, True])
def test_episodes_of_different_lengths(kind: str, terminates: bool) -> None:
    factory = functools.partial(Counting, 0, terminates)
    expected, expected_episodes = by_hand(factory, 40)
    with KINDS[kind](factory) as env:
        rows, episodes = collect(env, 40)
        assert env.tracker.steps == sum(map(len, rows))
        if kind == "wrapped-next_step":
            # This one cannot reset a row at once, so rows that ended alone miss a step; what there is, is the same.
            assert all(30 < len(row) < 40 for row in rows)
        else:
            assert [len(row) for row in rows] == [40, 40]
    assert rows == [row[: len(mine)] for row, mine in zip(expected, rows, strict=True)]
    assert episodes == [row[: len(mine)] for row, mine in zip(expected_episodes, episodes, strict=True)]
    assert all(len(mine) >= 8 for mine in episodes)


@pytest.mark.parametrize("kind", ["sync", "async", "sync-same_step", "sync-next_step", "async-same_step"])
def test_an_environment_that_reuses_its_array(kind: str) -> None:
    """Fault 25."""
    expected, _ = by_hand(functools.partial(Counting, 3), STEPS)
    with KINDS[kind](Mutating) as env:
        rows, _ = collect(env, STEPS)
    assert rows == expected


def test_returned_arrays_never_change_later() -> None:
    with make_env(Mutating, 2, seed=0) as env:
        kept = [env.reset(), *(env.step(np.zeros(2, np.int32)).next_observations for _ in range(5))]
        assert [array[0, 1] for array in kept] == [0, 1, 2, 3, 1, 2]


def test_an_unknown_autoreset_mode_is_refused() -> None:
    for mode in (None, "sometimes"):
        vector_env = SyncVectorEnv([Counting])
        vector_env.metadata["autoreset_mode"] = mode
        with pytest.raises(EnvError, match=r"(?s)autoreset mode.*AutoresetMode"):
            make_env(vector_env)


def test_a_same_step_environment_without_final_observations_is_refused() -> None:
    class Forgetful(gymnasium.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *result, infos = self.env.step(actions)
            return *result, {key: value for key, value in infos.items() if "final_obs" not in key}

    env = make_env(Forgetful(SyncVectorEnv([Counting], autoreset_mode=AutoresetMode.SAME_STEP)), seed=0)
    env.reset()
    env.step(np.zeros(1, np.int32))
    env.step(np.zeros(1, np.int32))
    with pytest.raises(EnvError, match="without its final observation"):
        env.step(np.zeros(1, np.int32))


def test_asynchronous_gymnasium_environment_without_shared_memory() -> None:
    """Gymnasium 1.4 forgets that it reset a row of one, so its rows are reset by steps."""
    factory = functools.partial(Counting, 0)
    vector_env = gymnasium.vector.AsyncVectorEnv([factory] * NUM_ENVS, shared_memory=False, context="forkserver")
    expected, _ = by_hand(factory, 20)
    with make_env(vector_env, seed=SEED) as env:
        rows, _ = collect(env, 20)
    assert all(len(row) > 10 for row in rows)
    assert rows == [row[: len(mine)] for row, mine in zip(expected, rows, strict=True)]


def test_a_native_vector_environment() -> None:
    with make_env("CartPole-v1", 3, "vector_entry_point", seed=0) as env:
        assert isinstance(env, GymnasiumVectorEnv)
        observations = env.reset()
        length, lengths = np.zeros(3, int), []
        for _ in range(100):
            result = env.step(env.sample_actions())
            length += result.valid
            for episode in result.episodes:
                lengths.append((episode.length, length[episode.env], episode.episode_return))
                length[episode.env] = 0
                x, _, angle, _ = result.next_observations[episode.env]
                assert abs(x) > 2.4 or abs(angle) > 0.2, "the final observation is one at which the pole has fallen"
            fresh = result.observations[result.episode_start]
            assert (np.abs(fresh) <= 0.05).all()
            assert result.rewards[~result.valid].sum() == 0
        assert len(lengths) > 6
        assert all(mine == counted == total for mine, counted, total in lengths)
        assert observations.dtype == np.float32


def test_stopping_and_going_on_joins_nothing_wrongly() -> None:
    """Fault 8: 5 steps, then 5 more, in an episode of 8; going on, and starting anew."""
    with make_env(functools.partial(Counting, 8), 2, seed=0) as env:
        env.reset()
        for _ in range(5):
            env.step(np.zeros(2, np.int32))
        assert env.observations[:, 1].tolist() == [5, 5]
        lengths = [episode.length for _ in range(5) for episode in env.step(np.zeros(2, np.int32)).episodes]
        assert lengths == [8, 8]
        assert env.observations[:, 1].tolist() == [2, 2]

        observations = env.reset()
        assert observations[:, :2].tolist() == [[3, 0], [3, 0]]
        assert env.observations is observations
        lengths = [episode.length for _ in range(10) for episode in env.step(np.zeros(2, np.int32)).episodes]
        assert lengths == [8, 8], "the two steps before the reset count nowhere"
        assert env.tracker.steps == 40


def test_options_reach_the_environment_and_stay_whole() -> None:
    """Gymnasium's vector environments pop keys from the options that they are given."""
    mask = np.array([True, True])
    for kind in ("sync", "sync-disabled"):
        with KINDS[kind](Counting) as env:
            options = {"reset_mask": mask, "level": 3}
            env.reset(options=options)
            assert options.keys() == {"reset_mask", "level"}
            assert env.infos[0]["options"]["level"] == 3


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_atari_in_the_modes_it_has(mode: str) -> None:
    """Fault 5: with 12 frames per episode, Pong ends after 3 steps."""
    pytest.importorskip("ale_py")
    kwargs = {"max_num_frames_per_episode": 12, "autoreset_mode": mode, "img_height": 8, "img_width": 8}
    kwargs |= {"noop_max": 1}
    with make_env("ALE/Pong-v5", 2, "vector_entry_point", env_kwargs=kwargs, seed=0) as env:
        env.reset()
        results = [env.step(np.zeros(2, np.int32)) for _ in range(8)]
    assert [result.truncated.tolist() for result in results] == [[False] * 2, [False] * 2, [True] * 2] * 2 + [
        [False] * 2
    ] * 2
    assert all(result.valid.all() for result in results)
    # A stack of 4 frames fills up in an episode: after 3 steps none is empty, after a reset three are.
    assert [(results[2].next_observations[i].max(axis=(1, 2)) > 0).tolist() for i in (0, 1)] == [[True] * 4] * 2
    assert [(results[2].observations[i].max(axis=(1, 2)) > 0).sum() for i in (0, 1)] == [1, 1]
    assert [episode.length for result in results for episode in result.episodes] == [3] * 4

"""Values change their form once, where they enter or leave: dtypes, starts, nesting."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rlweave.envs import make_env
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space, Tuple
from tests.envs.faulty_envs import Counting, Nested, Shifted, Talking

KINDS: dict[str, dict[str, Any]] = {
    "sync": {"vectorization": "sync"},
    "async": {"vectorization": "async"},
    **{mode: {"autoreset": mode} for mode in ("next_step", "same_step", "disabled")},
}


def assert_fits(space: Space, batch: Any, num_envs: int = 2) -> None:
    assert space.with_batch_rank(num_envs).why_not(batch) is None


@pytest.mark.parametrize("kind", KINDS)
def test_nested_and_empty_spaces(kind: str) -> None:
    """Fault 21."""
    # Gymnasium's vector environments cannot take actions apart that have empty containers or boxes of shape ().
    kwargs = {"plain_action": kind not in ("sync", "async")}
    with make_env(Nested, 2, env_kwargs=kwargs, **KINDS[kind], seed=0) as env:
        assert env.observation_space == Dict(
            count=IntBox(-1000, 1001),
            empty=Dict(),
            nothing=Tuple(),
            outer=Dict(gear=IntBox(3), speed=FloatBox(-1, 1, shape=(2,))),
            pair=Tuple(BoolBox(shape=(2,)), IntBox(high=[2, 3], shape=(2,))),
            pixels=IntBox(0, 256, shape=(2, 2, 1), dtype="uint8"),
            zero=FloatBox(-1, 1, shape=(0,)),
        )
        assert_fits(env.observation_space, env.reset())
        for step in (1, 2, 3):
            actions = env.sample_actions()
            assert_fits(env.action_space, actions)
            result = env.step(actions)
            assert_fits(env.observation_space, result.next_observations)
            final = result.next_observations
            assert final["outer"]["gear"].tolist() == [step % 3] * 2
            assert final["outer"]["speed"].tolist() == [[np.float32(0.1 * step), 0.0]] * 2
            assert final["pair"][1].tolist() == [[1, step % 3]] * 2
            assert final["pixels"].max() == 255 - step
            assert final["count"].tolist() == [-step] * 2
            assert final["empty"] == {}
            assert final["nothing"] == ()
            assert final["zero"].shape == (2, 0)
            for row in range(2):
                given = result.infos[row]["action"]
                assert given["lever"] == actions["lever"][row] - 1
                assert given["wheel"].dtype == np.float64
                assert given["wheel"] == pytest.approx(actions["wheel"][row])
                assert given.get("knob") == (None if kwargs["plain_action"] else actions["knob"][row])
                assert (given["buttons"][0] == actions["buttons"][0][row]).all()
                assert (given["buttons"][1] == actions["buttons"][1][row] + [5, -5]).all()
        assert result.observations["count"].tolist() == [0, 0], "the third step ended the episode"
        assert result.observations["pixels"].min() == 255


def test_everything_is_cast_once() -> None:
    """Fault 23."""
    with make_env(Counting, 2, seed=0) as env:
        observations = env.reset()
        result = env.step(env.sample_actions())
    assert observations.dtype == result.next_observations.dtype == result.rewards.dtype == np.float32
    assert result.terminated.dtype == result.truncated.dtype == result.valid.dtype == result.episode_start.dtype == bool
    assert env.sample_actions().dtype == np.int32
    assert env.gym_observation_space.dtype == np.float64
    assert env.observation_space == FloatBox(shape=(3,))


def test_returns_add_up_in_double_precision() -> None:
    with make_env(functools.partial(Counting, 1000), 1, seed=0) as env:
        env.reset()
        (episode,) = [e for _ in range(1000) for e in env.step(np.ones(1, np.int32)).episodes]
    assert episode.episode_return == sum(step + 0.1 for step in range(1, 1001))


@pytest.mark.parametrize("kind", ["sync", "async", "same_step"])
def test_starts_stay_at_the_boundary(kind: str) -> None:
    """Fault 20."""
    with make_env(Shifted, 3, **KINDS[kind], seed=0) as env:
        assert env.action_space == env.observation_space == IntBox(3)
        assert env.reset().tolist() == [0, 0, 0]
        result = env.step(np.array([0, 1, 2], np.int32))
        assert [info["action"] for info in result.infos] == [-1, 0, 1]
        assert result.rewards.tolist() == [-1, 0, 1]
        assert result.next_observations.tolist() == [0, 1, 2]
        assert result.next_observations.dtype == np.int32
        samples = np.concatenate([env.sample_actions() for _ in range(50)])
        assert set(samples.tolist()) == {0, 1, 2}


def test_blackjack() -> None:
    """Fault 21."""
    with make_env("Blackjack-v1", 2, seed=0) as env:
        assert env.observation_space == Tuple(IntBox(32), IntBox(11), IntBox(2))
        env.reset()
        for _ in range(20):
            assert_fits(env.observation_space, env.step(env.sample_actions()).observations)
        assert env.tracker.episodes > 5


@pytest.mark.parametrize("kind", ["sync", "async", "next_step"])
def test_text(kind: str) -> None:
    with make_env(Talking, 2, **KINDS[kind], seed=0) as env:
        assert env.reset()["say"].tolist() == ["hello", "hello"]
        env.step(np.array(["a", "b"], object))
        result = env.step(np.array(["c", "d"], object))
        assert result.next_observations["say"].tolist() == ["c", "d"]
        assert result.observations["say"].tolist() == ["hello", "hello"]
        assert result.next_observations["step"].tolist() == [[2], [2]]


def test_both_of_two_keys_arrive() -> None:
    """Fault 22, as far as it concerns environments: no leaf is dropped, none stands in for another."""
    with make_env(Nested, 1, seed=0) as env:
        env.reset()
        first = env.step(env.sample_actions()).next_observations
        second = env.step(env.sample_actions()).next_observations
    before, after = (env.observation_space.flatten_value(value) for value in (first, second))
    changed = {path for path, leaf in before.items() if (leaf != after[path]).any()}
    assert changed == {"count", "outer/gear", "outer/speed", "pair/1", "pixels"}

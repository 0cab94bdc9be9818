from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from rlweave.envs import AsyncEnv, GymnasiumVectorEnv, SyncEnv, make_env, resolve
from rlweave.envs.registration import registration_to_ship
from rlweave.errors import ConfigError, EnvError, install_command
from tests.envs.faulty_envs import Counting


def vector_env(num_envs: int = 2) -> gymnasium.vector.VectorEnv:
    return SyncVectorEnv([Counting] * num_envs)


@pytest.mark.parametrize(
    ("source", "options", "kind", "num_envs"),
    [
        ("CartPole-v1", {}, SyncEnv, 1),
        ("CartPole-v1", {"num_envs": 3, "vectorization": "sync"}, SyncEnv, 3),
        (gymnasium.spec("CartPole-v1"), {"num_envs": 2}, SyncEnv, 2),
        ("CartPole-v1", {"num_envs": 2, "vectorization": "async"}, AsyncEnv, 2),
        ("CartPole-v1", {"num_envs": 2, "vectorization": "vector_entry_point"}, GymnasiumVectorEnv, 2),
        ("CartPole-v1", {"num_envs": 2, "autoreset": "same_step"}, GymnasiumVectorEnv, 2),
        (Counting, {"num_envs": 2}, SyncEnv, 2),
        ([Counting, Counting], {}, SyncEnv, 2),
        (vector_env(), {}, GymnasiumVectorEnv, 2),
        (vector_env(), {"num_envs": 2, "vectorization": "custom", "autoreset": "next_step"}, GymnasiumVectorEnv, 2),
        (vector_env, {"vectorization": "custom", "env_kwargs": {"num_envs": 4}}, GymnasiumVectorEnv, 4),
        ("rlweave/GridWorld-v0", {}, SyncEnv, 1),
    ],
)
def test_sources_and_kinds(source: Any, options: dict[str, Any], kind: type, num_envs: int) -> None:
    with make_env(source, seed=0, **options) as env:
        assert type(env) is kind
        assert env.num_envs == num_envs
        env.reset()
        assert env.step(env.sample_actions()).rewards.shape == (num_envs,)


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("CartPole-v1", {"vectorization": "asink"}, "did you mean 'async'"),
        ("CartPole-v1", {"autoreset": "nextstep"}, "did you mean 'next_step'"),
        ("CartPole-v1", {"timeout_s": 3.0}, "vectorization='async'"),
        ("CartPole-v1", {"num_envs": 0}, "at least 1"),
        ("CartPole-v1", {"vectorization": "custom"}, "'custom' needs a vector environment"),
        (Counting, {"vectorization": "vector_entry_point"}, "needs an id"),
        ([Counting, Counting], {"num_envs": 3}, "there are 2 functions"),
        (vector_env(), {"vectorization": "sync"}, "already vectorized"),
        (vector_env(), {"num_envs": 3}, "has 2 sub-environments"),
        (vector_env(), {"env_kwargs": {"length": 3}}, "already made"),
        (vector_env(), {"autoreset": "same_step"}, "NEXT_STEP"),
        (vector_env, {"vectorization": "custom", "num_envs": 3}, "env_kwargs"),
    ],
)
def test_contradictions_are_refused(source: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_env(source, **options)


def test_env_kwargs_and_wrappers_of_a_registration_are_used() -> None:
    with make_env("CartPole-v1", 1, env_kwargs={"max_episode_steps": 3}, seed=0) as env:
        env.reset()
        results = [env.step(np.array([i % 2])) for i in range(3)]
        assert [bool(result.truncated[0]) for result in results] == [False, False, True]
    with make_env(Counting, 2, env_kwargs={"length": 1}) as env:
        env.reset()
        assert env.step(np.zeros(2, np.int32)).truncated.tolist() == [True, True]


def test_a_function_that_returns_the_wrong_thing() -> None:
    with pytest.raises(EnvError, match="must return a gymnasium.vector.VectorEnv"):
        make_env(Counting, vectorization="custom")


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("CartPol-v1", "did you mean 'CartPole-v1'"),
        ("CartPole-v7", "did you mean 'CartPole-v1'"),
        ("rlweave/GridWord-v0", "did you mean 'rlweave/GridWorld-v0'"),
        ("nosuchmodule:CartPole-v1", "module of an environment id cannot be imported"),
    ],
)
def test_a_misspelt_id_is_told_the_nearest_one(env_id: str, told: str) -> None:
    with pytest.raises(EnvError, match=told):
        resolve(env_id)
    with pytest.raises(EnvError, match=told):
        make_env(env_id)


def test_a_missing_package_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)  # as if it were not installed
    with pytest.raises(EnvError) as error:
        resolve("LunarLander-v3")
    assert error.value.fix == install_command("box2d")
    assert "Box2D is not installed" in error.value.received
    assert len(str(error.value).splitlines()) == 3


def test_ids_resolve() -> None:
    assert resolve("CartPole-v1").id == "CartPole-v1"
    assert resolve("rlweave.envs:rlweave/Catch-v0").id == "rlweave/Catch-v0"


def test_an_id_that_only_this_process_knows_works_in_others() -> None:
    """Fault 39: what is sent is the registration, not the id."""
    name = "test/OnlyHere-v0"
    gymnasium.register(name, functools.partial(Counting, 7), max_episode_steps=2)
    try:
        with make_env(name, 1, "async", seed=0) as env:
            env.reset()
            results = [env.step(np.zeros(1, np.int32)) for _ in range(2)]
            assert [bool(result.truncated[0]) for result in results] == [False, True]
    finally:
        del gymnasium.registry[name]


def test_importing_environments_loads_no_framework() -> None:
    script = "import sys, rlweave.envs; print([m for m in ('torch', 'jax', 'tensorflow', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_makes_an_environment_travels_without_a_registration() -> None:
    assert registration_to_ship(Counting) is None
    assert registration_to_ship("CartPole-v1") is None
    assert registration_to_ship("somewhere:Mine-v0") is None

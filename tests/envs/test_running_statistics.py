"""Wrappers that keep running statistics: a training refuses them, one's own loop may have them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit, vector

from rlweave.algorithms.registry import get_algorithm
from rlweave.envs import make_env
from rlweave.errors import EnvError
from tests.envs.faulty_envs import Counting


class Statistic:
    def __init__(self) -> None:
        self.mean = self.var = self.count = 0.0

    def update(self, value: Any) -> None:
        self.mean = value


class Own(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.seen = Statistic()

    def observation(self, observation: Any) -> Any:
        return observation


OBSERVATIONS, REWARDS, OTHER = "agent.normalize_observations=true", "agent.normalize_rewards=true", "Own.seen"
WRAPPED: dict[str, tuple[Callable[[gymnasium.Env], gymnasium.Env], str]] = {
    "observations": (NormalizeObservation, OBSERVATIONS),
    "inside": (lambda env: TimeLimit(NormalizeObservation(env), 3), OBSERVATIONS),
    "rewards": (NormalizeReward, REWARDS),
    "own": (Own, OTHER),
}


def wrapped(name: str) -> gymnasium.Env:
    return WRAPPED[name][0](Counting())


def as_vector(env: gymnasium.Env | None = None) -> SyncVectorEnv:
    return SyncVectorEnv([(lambda: env) if env else Counting])


@pytest.mark.parametrize(
    ("name", "vectorization"),
    [*((name, "sync") for name in WRAPPED), pytest.param("own", "async", marks=pytest.mark.slow)],
)
def test_each_environment_would_have_statistics_of_its_own(name: str, vectorization: str) -> None:
    factory = functools.partial(wrapped, name)
    with pytest.raises(EnvError, match=r"(?s)keeps running statistics.*environment 0, construction") as caught:
        make_env(factory, 1, vectorization, running_statistics=False)
    assert WRAPPED[name][1] in str(caught.value)
    with make_env(factory, 1, vectorization) as env:
        env.reset()
        env.step(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: vector.NormalizeObservation(as_vector()), OBSERVATIONS),
        (lambda: vector.NormalizeReward(as_vector()), REWARDS),
        (lambda: as_vector(wrapped("rewards")), REWARDS),
        (lambda: vector.RecordEpisodeStatistics(as_vector(wrapped("own"))), OTHER),
    ],
)
def test_so_would_a_vector_environment(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(EnvError, match="keeps running statistics") as caught:
        make_env(make, vectorization="custom", running_statistics=False)
    assert told in str(caught.value)
    make_env(make, vectorization="custom").close()


def test_a_training_refuses_before_it_begins() -> None:
    name = "NormalizedCounting-v0"
    gymnasium.register(name, functools.partial(wrapped, "observations"))
    try:
        spec = get_algorithm("ppo")
        config = spec.config_class(env=name, backend="torch", num_envs=2)
        with pytest.raises(EnvError, match=r"(?s)keeps running statistics.*agent.normalize_observations"):
            spec.make_trainer(config, None)
    finally:
        del gymnasium.registry[name]

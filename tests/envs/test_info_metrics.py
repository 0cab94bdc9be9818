"""Numbers of infos become metrics: those of an episode's last step, whatever kind of environment gives them."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlweave.algorithms.registry import get_algorithm
from rlweave.envs import make_env
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.errors import ConfigError, EnvError
from rlweave.flow.protocols import Episode
from rlweave.flow.reports import EpisodeWindow
from tests.envs.faulty_envs import Counting
from tests.envs.parallel_fakes import Scripted, together


class Successful(Counting):
    """Succeeds in every second episode; other infos are no numbers, or nested."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        info |= {"success": self._episode % 2 == 0, "time": {"seconds": np.float32(self._step)}, "name": "x"}
        return observation, reward, terminated, truncated, info


def episodes_of(kind: str, leaves: list[str]) -> list[Any]:
    """Infos of the episodes that end in environment 0 in ten steps."""
    make = functools.partial(make_env, info_metrics=leaves, seed=0)
    factories = [Successful, functools.partial(Successful, 4)]
    with make(factories) if kind == "sync" else make(factories, autoreset=kind) as env:
        env.reset()
        results = [env.step(np.zeros(2, np.int32)) for _ in range(10)]
    return [episode.info for result in results for episode in result.episodes if episode.env == 0]


@pytest.mark.parametrize("kind", ["sync", "next_step", "same_step", "disabled"])
def test_the_last_step_of_an_episode_counts(kind: str) -> None:
    infos = episodes_of(kind, ["success", "time/seconds"])
    assert infos == [tuple({"success": float(number % 2), "time/seconds": 3.0}.items()) for number in range(3)]


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        ("succes", "did you mean 'success'"),
        ("time/minutes", "has no 'time/minutes'"),
        ("name", "received: 'x' (of type str)"),
        ("time", "name a leaf within it"),
    ],
)
def test_what_is_no_number_or_never_there_is_an_error(leaf: str, told: str) -> None:
    with pytest.raises(EnvError, match=r"environment 0, step 3") as caught:
        episodes_of("sync", [leaf])
    assert told in str(caught.value)


def test_each_agent_has_its_own() -> None:
    class Telling(Scripted):
        def step(self, actions: Any) -> Any:
            *values, _ = super().step(actions)
            return *values, {"a": {"score": 1.0}, "b": {"score": len(self._steps)}, "all": {}}

    script = [{"a": 0, "b": 0}, {"a": (1, 1.0, ""), "b": (1, 1.0, "T")}, {"a": (1, 1.0, "T")}]
    with MultiAgentEnv([lambda: Telling("ab", [script])], together, info_metrics=["score"]) as env:
        env.reset()
        env.step({"all": np.zeros(2, np.int32)})
        episodes = env.step({"all": np.zeros(2, np.int32)}).episodes
    told = [(episode.agent, episode.info) for episode in episodes]
    assert told == [
        ("a", (("score", 1.0),)),
        ("b", (("score", 0.0),)),
    ]


def test_a_window_has_the_mean_of_those_that_have_it_and_is_saved() -> None:
    window, again = EpisodeWindow(3), EpisodeWindow(3)
    window.add([Episode(0.0, 1, info=(("x", value),)) for value in (9.0, 1.0, 2.0)])
    window.add([Episode(0.0, 1, "p")])
    assert window.mean_infos() == {"x": 1.5}
    again.load_state_dict(window.state_dict())
    assert again.mean_infos() == {"x": 1.5}
    assert again.returns_by_policy() == {"p": 0.0}


def test_a_training_reports_them() -> None:
    name = "Successful-v0"
    gymnasium.register(name, Successful)
    try:
        spec = get_algorithm("ppo")
        sets = {"env": name, "backend": "torch", "num_envs": 2, "info_metrics": ["success"], "final_episodes": 0}
        sizes = {"rollout_steps": 8, "epochs": 1, "minibatches": 1, "network": []}
        config = spec.config_class.from_data({**sets, "steps": 32, "report_every": 16, "agent": sizes})
        trainer = spec.make_trainer(config, None)
        try:
            rows = list(trainer.train())
        finally:
            trainer.close()
    finally:
        del gymnasium.registry[name]
    assert 0.0 < rows[-1]["info/success"] < 1.0
    assert 0.0 <= rows[-1]["evaluation_info/success"] <= 1.0


def test_environments_in_the_graph_have_none() -> None:
    spec = get_algorithm("ppo")
    config = spec.config_class(env="CartPole-v1", backend="numpy", placement="fused", info_metrics=["x"])
    with pytest.raises(ConfigError, match=r"no infos(?s:.*)info_metrics"):
        spec.make_trainer(config, None)

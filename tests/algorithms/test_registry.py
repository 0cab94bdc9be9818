"""Names of algorithms and environments."""

import pytest

from rlweave.algorithms import registry
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import check_environment, environment_names
from rlweave.algorithms.registry import AlgorithmSpec, Evaluation, algorithm_names, get_algorithm, register_algorithm
from rlweave.errors import ConfigError


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def spec(name):
    return AlgorithmSpec(name, "does nothing", TrainConfig, lambda config, run: None)


def test_an_algorithm_is_registered_once():
    mine = register_algorithm(spec("mine"))
    assert get_algorithm("mine") is mine
    assert register_algorithm(mine) is mine
    assert {"mine", "ppo", "dqn"} <= set(algorithm_names())
    for name in ("mine", "ppo"):
        with pytest.raises(ConfigError, match="of this name already"):
            register_algorithm(spec(name))


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'ppo'\?"):
        get_algorithm("pppo")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CartPole", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Pendulumm-v1", "Pendulum-v1"),
        ("HalfCheeta-v5", "HalfCheetah-v5"),
    ],
)
def test_an_unknown_environment_names_the_nearest_in_its_newest_version(name, near):
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        check_environment(name)


def test_environments_that_exist(tmp_path, monkeypatch):
    assert "CartPole-v1" in environment_names()
    check_environment("CartPole-v1")
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    check_environment("my_envs:Mine-v0")
    with pytest.raises(ConfigError, match="no_such_thing"):
        check_environment("no_such_thing:Mine-v0")


def test_an_evaluation_has_mean_and_deviation():
    evaluation = Evaluation((1.0, 3.0), (5, 5))
    assert (evaluation.mean, evaluation.deviation) == (2.0, 1.0)

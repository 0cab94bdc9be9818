"""Names of algorithms."""

import pytest

from rlweave.algorithms import registry
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.registry import algorithm_names, get_algorithm, register_algorithm
from rlweave.errors import ConfigError


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def spec(name):
    return Algorithm(name, "does nothing", TrainConfig, trainer=lambda config, run: None)


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

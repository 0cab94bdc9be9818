"""Names of algorithms."""

from types import SimpleNamespace

import pytest

from rlweave.algorithms import registry
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.registry import algorithm_names, get_algorithm, register_algorithm
from rlweave.errors import ConfigError
from rlweave.plugins import plugin_error


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def spec(name):
    return Algorithm(name, "does nothing", TrainConfig, trainer=lambda config, run: None)


def other_spec(name):
    return Algorithm(name, "does nothing either", TrainConfig, trainer=lambda config, run: None)


def test_an_algorithm_is_registered_once():
    mine = register_algorithm(spec("mine"))
    assert get_algorithm("mine") is mine
    assert register_algorithm(mine) is mine
    assert {"mine", "ppo", "dqn"} <= set(algorithm_names())
    for name in ("mine", "ppo"):
        with pytest.raises(ConfigError, match="of this name already") as raised:
            register_algorithm(other_spec(name))
        assert "choose another name" in raised.value.fix


def test_a_definition_that_is_run_again_replaces_the_first_one():
    first, again = register_algorithm(spec("mine")), register_algorithm(spec("mine"))
    assert first is not again
    assert get_algorithm("mine") is again


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'ppo'\?"):
        get_algorithm("pppo")


def test_what_rlweave_itself_registers_of_another_version_is_mended_by_installing_it_again():
    point = SimpleNamespace(name="multi-agent", dist=SimpleNamespace(name="rlweave"))
    assert "pip install -e ." in plugin_error(point, "there is an algorithm 'multi-agent' already").fix

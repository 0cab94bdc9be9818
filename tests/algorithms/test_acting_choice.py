"""A training with `acting_backend="auto"`: the choice is told and written down, and a resumed run makes none."""

import pytest

from rlweave.agents.acting import ActingChoice
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms.test_trainer import finish, make, state_of


def test_the_choice_is_noted_and_written_into_the_settings(tmp_path, monkeypatch):
    monkeypatch.setattr("rlweave.agents.acting.choose_acting_backend", _scripted)
    trainer = make("dqn", tmp_path / "run", backend="torch", agent__acting_backend="auto")
    assert trainer.notes == [str(trainer.agent.acting_choice)]
    assert trainer.config.agent.acting_backend == trainer.agent.acting.backend.name == "numpy"
    name, settings = RunDirectory(tmp_path / "run").read_config()
    assert (name, settings["agent"]["acting_backend"]) == ("dqn", "numpy")
    assert settings == trainer.config.to_data()
    trainer.close()

    monkeypatch.setattr("rlweave.agents.acting.choose_acting_backend", lambda *args: pytest.fail("measured again"))
    resumed = make("dqn", tmp_path / "run", backend="torch", agent__acting_backend=settings["agent"]["acting_backend"])
    assert resumed.agent.acting.backend.name == "numpy"
    assert resumed.notes == []
    resumed.close()


def test_training_after_measuring_is_the_training_with_the_named_backend(tmp_path):
    measured = make("dqn", None, backend="torch", steps=200, agent__acting_backend="auto")
    chosen = measured.agent.config.acting_backend
    named = make("dqn", None, backend="torch", steps=200, agent__acting_backend=chosen)
    rows = [finish(trainer) for trainer in (measured, named)]
    assert rows[0] == rows[1]
    for path, value in state_of(named)[0].items():
        assert (state_of(measured)[0][path] == value).all(), path
    for trainer in (measured, named):
        trainer.close()


def _scripted(executors, method, input_spaces, batch_size):
    for make_executor in executors.values():
        make_executor()
    return ActingChoice("numpy", batch_size, {name: 1.0 + len(name) for name in executors})

"""What checkpoints of a training hold, what is said of them, and what happens where the disk refuses."""

import numpy as np
import pytest

from rlweave.algorithms import saving
from rlweave.errors import CheckpointError
from rlweave.runs.block_files import BLOCKS, INDEX
from rlweave.runs.checkpoint import list_checkpoints, load_checkpoint
from tests.algorithms.test_checkpoints_in_passing import CASES, trainers  # noqa: F401
from tests.algorithms.test_trainer import finish

DQN, SETTINGS = CASES["dqn"]


def size_of(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("sets", [{}, {"agent__memory_place": "graph"}], ids=["host", "graph"])
def test_a_memory_takes_as_much_as_is_filled_of_it(trainers, tmp_path, sets):  # noqa: F811
    trainer = trainers(DQN, SETTINGS, tmp_path / "run", agent__memory_capacity=200_000, agent__prioritized=True, **sets)
    finish(trainer)
    path = trainer.save()
    assert (path / INDEX).exists()
    memory = sum(value.nbytes for name, value in load_checkpoint(path)[0].items() if name.startswith("memory/"))
    assert memory > 10_000_000
    assert size_of(path / BLOCKS) < memory / 10
    assert size_of(path) - size_of(path / BLOCKS) < 300_000


def test_a_run_without_its_memory_fills_it_anew_before_it_learns(trainers, tmp_path):  # noqa: F811
    sets = {"save_memory": False, "agent__memory_capacity": 5_000, "agent__learning_starts": 60}
    trainer = trainers(DQN, SETTINGS, tmp_path / "run", **sets)
    finish(trainer)
    path = trainer.save()
    assert not (path / BLOCKS).exists()
    resumed = trainers(DQN, SETTINGS, tmp_path / "run", steps=1_000, **sets)
    resumed.restore(path)
    began, updates = resumed.env_steps, resumed.plan.counters.updates
    assert updates > 50
    while resumed.env_steps < began + 56:
        resumed._advance(resumed.env_steps + 1)
        assert resumed.plan.counters.updates == updates
    resumed._advance(began + 80)
    assert resumed.plan.counters.updates > updates


def test_the_first_checkpoint_is_described_and_a_large_one_announced(trainers, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(saving, "_WORTH_A_WARNING", 1_000_000)
    trainer = trainers(DQN, SETTINGS, tmp_path / "run", agent__memory_capacity=100_000)
    finish(trainer)
    warning, first = trainer.notes
    assert "MiB when it is full" in warning
    assert "save_memory=false" in warning
    assert first.startswith(f"checkpoint {list_checkpoints(tmp_path / 'run/checkpoints')[0].name}: model ")
    assert "replay memory" in first
    assert "written in" in first


@pytest.mark.parametrize("failure", ["continue", "stop"])
def test_where_the_disk_is_full_a_training_goes_on_or_stops_as_is_set(trainers, tmp_path, monkeypatch, failure):  # noqa: F811
    trainer = trainers(DQN, SETTINGS, tmp_path / "run", disk_failure=failure, checkpoint_every=100, steps=400)
    rows = trainer.train()
    while not list_checkpoints(trainer.run.checkpoints):
        next(rows)
    good = list_checkpoints(trainer.run.checkpoints)[-1]

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlweave.runs.checkpoint._flush_to_disk", full_disk)
    if failure == "stop":
        with pytest.raises(CheckpointError, match=rf"(?s)No space left.*the last good checkpoint is .*{good.name}"):
            list(rows)
        return
    assert list(rows)[-1]["env_steps_sampled"] >= 400
    failures = [note for note in trainer.notes if "nothing was saved" in note]
    assert len(failures) >= 2
    assert all(good.name in note for note in failures)
    assert {path.name for path in trainer.run.checkpoints.iterdir()} <= {"best", good.name}
    np.testing.assert_equal(load_checkpoint(good)[1]["env_steps"], int(good.name.removeprefix("step-")))

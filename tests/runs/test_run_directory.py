"""Run directories: safe names, nothing overwritten, what was run can be read back."""

import json

import pytest

from rlweave.errors import ConfigError
from rlweave.runs.run_directory import RunDirectory

SETTINGS = {"env": "ALE/Pong-v5", "seed": 3, "agent": {"lr": 3e-4, "layers": [64, 64], "name": "no"}}


def test_names_are_safe_and_never_taken_twice(tmp_path):
    runs = [RunDirectory.create("ppo", {**SETTINGS, "env": env}, root=tmp_path / "runs") for env in ["ALE/Pong-v5"] * 3]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.name.startswith("ppo-ALE-Pong-v5-") and "-seed3" in run.path.name for run in runs)
    odd = RunDirectory.create("ppo", {**SETTINGS, "env": "../a b:c-v0"}, root=tmp_path / "runs")
    assert odd.path.parent == tmp_path / "runs"
    assert odd.path.name.startswith("ppo-..-a-b-c-v0-")


def test_what_was_run_is_read_back(tmp_path):
    run = RunDirectory.create("ppo", SETTINGS, command=["rlweave", "train", "a b"], path=tmp_path / "run")
    assert run.read_config() == ("ppo", SETTINGS)
    assert run.command_file.read_text() == "rlweave train 'a b'\n"
    versions = json.loads(run.versions_file.read_text())
    assert versions["numpy"].count(".") == 2
    assert "python" in versions
    assert run.checkpoints.is_dir()
    assert not run.has_checkpoint()


def test_an_empty_directory_may_be_used_and_a_full_one_not(tmp_path):
    (tmp_path / "empty").mkdir()
    RunDirectory.create("ppo", SETTINGS, path=tmp_path / "empty")
    with pytest.raises(ConfigError, match="rlweave resume"):
        RunDirectory.create("ppo", SETTINGS, path=tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="something in the run directory already"):
        RunDirectory.create("ppo", SETTINGS, path=tmp_path / "file")


def test_opening_takes_the_run_or_what_lies_in_it(tmp_path):
    run = RunDirectory.create("ppo", SETTINGS, path=tmp_path / "run")
    (run.checkpoints / "best").mkdir()
    assert RunDirectory.open(run.path).path == run.path
    assert RunDirectory.open(run.checkpoints).path == run.path
    assert RunDirectory.open(run.checkpoints / "best").path == run.path
    with pytest.raises(ConfigError, match="did you mean"):
        RunDirectory.open(tmp_path / "rnu")
    with pytest.raises(ConfigError, match="no run there"):
        RunDirectory.open(run.path / "missing")


def test_tensorboard_can_be_left_out(tmp_path):
    run = RunDirectory.create("ppo", SETTINGS, path=tmp_path / "run")
    assert run.open_metrics(False).tensorboard is None
    assert run.open_metrics(True).tensorboard == run.tensorboard

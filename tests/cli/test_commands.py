"""`rlweave evaluate | plot | graph | list`."""

import json
import shutil
from pathlib import Path

import pytest

from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.errors import install_command
from rlweave.runs import metrics
from rlweave.runs.checkpoint import save_checkpoint
from rlweave.view import curves


@pytest.fixture
def run(rlweave):
    """A finished run in `run/`."""
    assert rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", "run").code == 0


@pytest.mark.usefixtures("run")
def test_evaluate_repeats_the_evaluation_of_the_training(rlweave, tmp_path):
    result = rlweave("evaluate", "run", "--json")
    data = json.loads(result.out)
    assert data.pop("checkpoint").endswith("step-000000000100")
    assert data == json.loads((tmp_path / "run/evaluation.json").read_text())
    other = json.loads(rlweave("evaluate", "run", "--json", "--seed", 5, "--episodes", 3).out)
    assert len(other["returns"]) == 3


@pytest.mark.usefixtures("run")
def test_evaluate_prefers_the_best_checkpoint_and_takes_any(rlweave, tmp_path):
    save_checkpoint(tmp_path / "run/checkpoints", 70, {}, {"env_steps": 70}, name="best")
    assert "checkpoints/best: mean return 7" in rlweave("evaluate", "run").out
    assert "mean return 5" in rlweave("evaluate", "run/checkpoints/step-000000000050").out
    assert rlweave("evaluate", "run/checkpoints/step-000000000051").code == 2


@pytest.mark.usefixtures("run")
def test_evaluate_refuses_a_damaged_checkpoint(rlweave, tmp_path):
    (tmp_path / "run/checkpoints/step-000000000050/meta.json").write_text("{")
    result = rlweave("evaluate", "run/checkpoints/step-000000000050")
    assert result.code == 2
    assert "meta.json" in result.err
    assert "the last good checkpoint is run/checkpoints/step-000000000100" in result.err


def test_components_of_plug_in_algorithms_are_listed(rlweave):
    listed = rlweave("list", "components").out
    assert "noise_table" in listed
    assert "dense" in listed


def test_who_learns_is_listed_with_the_backends(rlweave):
    listed = rlweave("list", "backends").out
    assert "learns what needs no gradients: es" in listed
    names = [name for name in algorithm_names() if not get_algorithm(name).needs_gradients]
    assert [name for name in names if name != "counting"] == ["es"]


def test_plot_groups_seeds(rlweave, tmp_path, monkeypatch):
    for seed in (0, 1):
        rlweave("train", "counting", "--env", "CartPole-v1", "--seed", seed)
    drawn = []
    monkeypatch.setattr(curves, "draw_curves", lambda c, path, **options: drawn.append((c, options)) or path)
    result = rlweave("plot", "runs", "-o", "x.png")
    assert result.code == 0, result.err
    ((lines, options),) = drawn
    assert [line.group for line in lines] == ["counting CartPole-v1 numpy"] * 2
    assert options["threshold"] == 475.0
    assert "2 runs drawn: x.png" in result.out


def test_plot_groups_by_all_settings_but_the_seed_and_names_what_differs(rlweave, tmp_path, monkeypatch):
    for seed, lr in ((0, 0.5), (1, 0.5), (0, 0.25)):
        rlweave("train", "counting", "--env", "CartPole-v1", "--seed", seed, "--set", f"agent.lr={lr}")
    without = rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", "runs/not-begun")
    assert without.code == 0
    (tmp_path / "runs/not-begun/metrics.csv").unlink()
    shutil.copytree(tmp_path / "runs/not-begun", tmp_path / "runs/killed")
    (tmp_path / "runs/killed/metrics.csv").touch()
    drawn = []
    monkeypatch.setattr(curves, "draw_curves", lambda c, path, **options: drawn.extend(c) or path)
    result = rlweave("plot", "runs", "-o", "x.png")
    assert result.code == 0, result.err
    kind = "counting CartPole-v1 numpy"
    assert sorted(line.group for line in drawn) == [f"{kind} agent.lr=0.25", *[f"{kind} agent.lr=0.5"] * 2]
    assert "runs/not-begun has no metrics yet" in result.err
    assert "runs/killed has no metrics yet" in result.err
    (tmp_path / "runs/killed/metrics.csv").write_bytes(b"env_steps_sampled\n\0\0")
    result = rlweave("plot", "runs/killed")
    assert result.code == 2
    assert "the file of metrics is damaged" in result.err


@pytest.mark.usefixtures("run")
def test_plot_writes_a_picture_of_any_column(rlweave, tmp_path):
    assert rlweave("plot", "run").code == 0
    assert (tmp_path / "learning-curves.png").read_bytes().startswith(b"\x89PNG")
    assert rlweave("plot", "run", "--column", "loss", "-o", "loss.svg").code == 0
    assert "loss" in (tmp_path / "loss.svg").read_text()
    result = rlweave("plot", "run", "--column", "los")
    assert result.code == 2
    assert "did you mean 'loss'?" in result.err


def test_training_goes_on_without_the_optional_extras(rlweave, tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "is_installed", lambda: False)
    monkeypatch.setattr(metrics, "tensorboard_is_installed", lambda: False)
    monkeypatch.setattr("rlweave.runs.run_directory.tensorboard_is_installed", lambda: False)
    result = rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", "run")
    assert result.code == 0
    assert install_command("plot") in result.err
    assert not (tmp_path / "run/learning-curve.png").exists()
    assert not (tmp_path / "run/tensorboard").exists()
    asked = rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", "two", "--set", "tensorboard=true")
    assert asked.code == 2
    assert install_command("tensorboard") in asked.err


def test_graph_tells_how_it_was_built(rlweave, tmp_path):
    result = rlweave("graph", "counting", "--env", "CartPole-v1", "--explain")
    assert (result.code, result.out) == (0, "1. Composition: 1 component\n")
    both = rlweave("graph", "counting", "--env", "CartPole-v1", "--explain", "--code", "update")
    assert both.code == 2
    assert "one thing at a time" in both.err
    assert "rlweave graph dqn" in (Path(__file__).parents[2] / "docs/rlgraph/algorithm-1.md").read_text()
    phases = rlweave("graph", "dqn", "--env", "CartPole-v1", "--backend", "numpy", "--explain").out
    assert "dqn/memory is complete: records Dict(" in phases


def test_graph_draws_or_shows_code(rlweave, tmp_path):
    assert rlweave("graph", "counting", "--env", "CartPole-v1").code == 0
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    result = rlweave("graph", "counting", "--env", "CartPole-v1", "--code", "update")
    assert result.out == "def update(state, x):\n    return x\n\n"


def test_list_backends_says_how_to_install_those_that_are_missing(rlweave, monkeypatch):
    from rlweave.cli import list_command

    monkeypatch.setattr(list_command, "is_installed", lambda name: name != "torch")
    lines = {line.split()[0]: line for line in rlweave("list", "backends").out.splitlines()}
    assert install_command("torch") in lines["torch"]
    assert "installed: numpy 2" in lines["numpy"]


def test_list_environments(rlweave):
    out = rlweave("list", "environments", "--match", "cart").out
    assert "CartPole-v1" in out
    assert "Pendulum" not in out


def test_list_algorithms(rlweave):
    out = rlweave("list", "algorithms").out
    assert "counting" in out
    assert "counts steps" in out


def test_list_presets(rlweave):
    out = rlweave("list", "--presets", "--match", "ppo, pend").out
    title, *rows = out.splitlines()
    assert title == "ppo, Pendulum-v1"
    shown = dict(row.split(maxsplit=1) for row in rows)
    assert shown["steps"] == "299008"
    assert shown["agent.lr"] == '{"type": "linear", "start": 0.001, "end": 0.0}'
    assert "counting, CartPole-v1" in rlweave("list", "algorithms", "--presets").out
    assert rlweave("list", "backends", "--presets").code == 2

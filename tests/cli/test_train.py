"""`rlweave train` and `rlweave resume`: what they write, print, and return."""

import dataclasses
import json
import re
import shlex

import pytest

from rlweave.algorithms import registry
from rlweave.algorithms.evaluating import final_evaluation_seed
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import BuildError
from rlweave.runs.checkpoint import list_checkpoints, load_checkpoint
from rlweave.runs.metrics import read_metrics
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import describe_settings
from rlweave.settings.sources import parse_yaml
from tests.cli.counting import COUNTING


def train(rlweave, *arguments, run_dir="run"):
    return rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", run_dir, *arguments)


def test_a_run_writes_everything_and_says_where(rlweave, tmp_path):
    result = train(rlweave, "--seed", 3, "--set", "agent.hidden=[8]")
    assert result.code == 0, result.err
    run = tmp_path / "run"
    config = parse_yaml((run / "config.yaml").read_text())
    assert config["algorithm"] == "counting"
    assert config["seed"] == 3
    assert config["agent"] == {"lr": 2.0, "hidden": [8]}
    versions = json.loads((run / "versions.json").read_text())
    assert {"python", "numpy", "gymnasium", "rlweave"} <= set(versions)
    command = "rlweave train counting --env CartPole-v1 --run-dir run --seed 3 --set 'agent.hidden=[8]'"
    assert (run / "command.txt").read_text() == command + "\n"
    metrics = read_metrics(run / "metrics.csv")
    assert metrics["env_steps_sampled"].tolist() == list(range(10, 101, 10))
    assert metrics["episode_return"][-1] == 200.0
    assert [path.name for path in list_checkpoints(run / "checkpoints")] == ["step-000000000050", "step-000000000100"]
    assert (run / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "graph.svg").read_text().startswith("<svg")
    assert "<title>Plan" in (run / "plan.svg").read_text()
    assert list((run / "tensorboard").glob("events.*"))
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert len(evaluation["returns"]) == 20
    for name in (
        "config.yaml",
        "metrics.csv",
        "learning-curve.png",
        "graph.svg",
        "plan.svg",
        "tensorboard",
        "step-000000000100",
    ):
        assert f"run/{name}" in result.out.replace("checkpoints/", "")
    assert "greedy evaluation" in result.out
    assert "the environment asks for 475" in result.out


def test_the_default_run_directory_says_what_the_run_is(rlweave, tmp_path):
    for _ in range(2):
        assert rlweave("train", "counting", "--env", "CartPole-v1", "--seed", 7, "--steps", 20).code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2
    assert all(name.startswith("counting-CartPole-v1-2") and "-seed7" in name for name in names)


def test_precedence_defaults_preset_file_command_line(rlweave, tmp_path):
    (tmp_path / "f.yaml").write_text("agent: {lr: 3e-1}\nsteps: 30\nseed: 5\n")
    train(rlweave, "--config", "f.yaml", "--set", "seed=6", "--num-envs", 2)
    config = parse_yaml((tmp_path / "run" / "config.yaml").read_text())
    assert config["agent"] == {"lr": 0.3, "hidden": [64, 64]}
    assert (config["steps"], config["seed"], config["num_envs"], config["backend"]) == (30, 6, 2, "numpy")
    train(rlweave, "--no-presets", run_dir="plain")
    assert parse_yaml((tmp_path / "plain" / "config.yaml").read_text())["agent"]["lr"] == 0.5


def test_the_config_of_a_run_repeats_it(rlweave, tmp_path):
    train(rlweave, "--set", "agent.lr=0.25", "--steps", 40)
    assert rlweave("train", "counting", "--config", "run/config.yaml", "--run-dir", "again").code == 0
    assert (tmp_path / "run/config.yaml").read_text() == (tmp_path / "again/config.yaml").read_text()
    assert (tmp_path / "run/metrics.csv").read_text() == (tmp_path / "again/metrics.csv").read_text()
    assert (tmp_path / "run/evaluation.json").read_text() == (tmp_path / "again/evaluation.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["train", "conuting", "--env", "CartPole-v1"], "did you mean 'counting'?"),
        (["train", "counting", "--env", "CartPol-v1"], "did you mean 'CartPole-v1'?"),
        (["train", "counting", "--env", "cartpole"], "did you mean 'CartPole-v1'?"),
        (["train", "counting", "--env", "CartPole-v7"], "did you mean 'CartPole-v1'?"),
        (["train", "counting", "--env", "no_such_module:X-v0"], "no_such_module"),
        (["train", "counting"], "--env CartPole-v1"),
        (["train", "counting", "--env", "CartPole-v1", "--backend", "numpyy"], "did you mean 'numpy'?"),
        (["train", "counting", "--env", "CartPole-v1", "--set", "agent.lrr=1"], "did you mean 'lr'?"),
        (["train", "counting", "--env", "CartPole-v1", "--set", "agnet.lr=1"], "did you mean 'agent'?"),
        (["train", "counting", "--env", "CartPole-v1", "--set", "agent.lr=-1"], "greater than 0"),
        (["train", "counting", "--env", "CartPole-v1", "--set", "steps=many"], "must be int"),
        (["train", "counting", "--env", "CartPole-v1", "--set", "steps"], "--set key=value"),
        (["train", "counting", "--env", "CartPole-v1", "--seed", "1", "--set", "seed=2"], "two values for 'seed'"),
        (["train", "counting", "--env", "CartPole-v1", "--config", "none.yaml"], "cannot read the config file"),
        (["train", "counting", "--env", "CartPole-v1", "--sed", "1"], "--seed"),
        (["trian", "counting"], "train"),
        (["resume", "nothing"], "no run there"),
        (["evaluate", "nothing"], "no run there"),
        (["plot", "nothing"], "no run there"),
        (["list", "backend"], "did you mean 'backends'?"),
    ],
)
def test_a_wrong_word_is_named_with_the_nearest_right_one(rlweave, tmp_path, arguments, text):
    result = rlweave(*arguments)
    assert result.code == 2
    assert text in result.err
    assert "Traceback" not in result.err
    assert not list(tmp_path.iterdir())


def test_a_trainer_that_cannot_be_made_leaves_no_directory(rlweave, tmp_path, monkeypatch):
    def refuse(config, run):
        raise BuildError("the graph cannot be built", where="ppo/policy")

    monkeypatch.setattr(registry, "_registered", {"counting": dataclasses.replace(COUNTING, trainer=refuse)})
    result = train(rlweave)
    assert result.code == 1
    assert "where:    ppo/policy" in result.err
    assert not list(tmp_path.iterdir())


def test_a_run_is_never_overwritten(rlweave, tmp_path):
    train(rlweave)
    before = (tmp_path / "run/metrics.csv").read_text()
    result = train(rlweave, "--steps", 10)
    assert result.code == 2
    assert "rlweave resume run" in result.err
    assert (tmp_path / "run/metrics.csv").read_text() == before


def test_a_config_file_for_another_algorithm_is_refused(rlweave, tmp_path):
    (tmp_path / "f.yaml").write_text("algorithm: ppo\n")
    result = train(rlweave, "--config", "f.yaml")
    assert result.code == 2
    assert "another algorithm" in result.err


def test_a_failing_environment_says_how_to_go_on(rlweave, tmp_path):
    result = train(rlweave, "--set", "fail_at=80")
    assert result.code == 1
    assert "env 3, step 7" in result.err
    assert "rlweave resume run" in result.err
    assert "Traceback" not in result.err
    assert len(read_metrics(tmp_path / "run/metrics.csv")["env_steps_sampled"]) == 7
    assert (tmp_path / "run/learning-curve.png").exists()


def test_a_cut_run_resumed_has_the_metrics_of_an_uncut_one(rlweave, tmp_path):
    train(rlweave, run_dir="uncut")
    train(rlweave, "--set", "fail_at=80", run_dir="cut")
    config = tmp_path / "cut/config.yaml"
    config.write_text(config.read_text().replace("fail_at: 80", "fail_at: -1"))
    result = rlweave("resume", "cut", "--steps", 50)
    assert result.code == 2
    assert "50 of 50" in result.err
    assert "leave it out to go on to 100" in result.err
    result = rlweave("resume", "cut")
    assert result.code == 0, result.err
    assert "at 50 environment steps" in result.out
    assert (tmp_path / "cut/metrics.csv").read_text() == (tmp_path / "uncut/metrics.csv").read_text()
    assert (tmp_path / "cut/evaluation.json").read_text() == (tmp_path / "uncut/evaluation.json").read_text()
    commands = (tmp_path / "cut/command.txt").read_text().splitlines()
    assert [shlex.split(command)[1] for command in commands] == ["train", "resume"]


def test_resume_can_lengthen_a_complete_training_and_else_says_so(rlweave, tmp_path):
    train(rlweave)
    result = rlweave("resume", "run")
    assert result.code == 2
    assert "nothing is left to train: 100 of 100" in result.err
    assert "leave it out" not in result.err
    assert rlweave("resume", "run", "--steps", 150).code == 0
    assert read_metrics(tmp_path / "run/metrics.csv")["env_steps_sampled"][-1] == 150
    assert parse_yaml((tmp_path / "run/config.yaml").read_text())["steps"] == 150


class Another:
    """Tries to train the same run meanwhile."""

    def on_report(self, run, report):
        with RunDirectory(run.path).writing():
            pass


def test_one_run_is_trained_by_one_process_at_a_time(rlweave, tmp_path):
    train(rlweave)
    with RunDirectory(tmp_path / "run").writing():
        before = (tmp_path / "run/command.txt").read_text()
        result = rlweave("resume", "run", "--steps", 150)
        assert result.code == 2
        assert "another process is training this run" in result.err
        assert (tmp_path / "run/command.txt").read_text() == before
    assert rlweave("resume", "run", "--steps", 150).code == 0
    result = train(rlweave, "--callback", f"{__name__}:Another", run_dir="other")
    assert "another process is training this run" in result.err


@pytest.mark.parametrize(
    "words", [["--workers", "3"], ["--workers=3"], ["--set", "agent.lr=0.1"], ["--no-presets"], ["--config", "f.yaml"]]
)
def test_resume_says_that_a_run_keeps_its_settings(rlweave, tmp_path, words):
    train(rlweave)
    before = (tmp_path / "run/config.yaml").read_text()
    for arguments in (["run", *words], [*words, "run"]):
        result = rlweave("resume", *arguments, "--steps", 150)
        assert result.code == 2
        assert "a run keeps its settings" in result.err
        asked = " ".join(words)
        assert f"received: {asked}\n" in result.err
        assert f"rlweave train counting --config run/config.yaml {asked};" in result.err
    assert (tmp_path / "run/config.yaml").read_text() == before
    assert "--steps" in rlweave("resume", "run", "--stepz", 150).err


def test_resume_passes_over_a_damaged_checkpoint_and_says_so(rlweave, tmp_path):
    train(rlweave)
    damaged = list_checkpoints(tmp_path / "run/checkpoints")[-1]
    (damaged / "arrays.safetensors").write_bytes(b"")
    result = rlweave("resume", "run")
    assert result.code == 0, result.err
    assert f"{damaged.name} is damaged" in result.err
    assert load_checkpoint(damaged)[1] == {"env_steps": 100}


def test_resume_from_an_older_checkpoint_sets_later_ones_aside(rlweave, tmp_path):
    train(rlweave)
    result = rlweave("resume", "run/checkpoints/step-000000000050", "--steps", 70)
    assert result.code == 0, result.err
    names = [path.name for path in list_checkpoints(tmp_path / "run/checkpoints")]
    assert names == ["step-000000000050", "step-000000000070"]
    assert [path.name[:17] for path in (tmp_path / "run/checkpoints/set-aside").iterdir()] == ["step-000000000100"]
    assert read_metrics(tmp_path / "run/metrics.csv")["env_steps_sampled"].tolist() == [10, 20, 30, 40, 50, 60, 70]


def test_the_final_evaluation_has_seeds_of_its_own():
    seeds = [final_evaluation_seed(seed) for seed in range(100)]
    assert len(set(seeds)) == 100
    assert not set(seeds) & set(range(10_000))


def test_settings_are_shown_with_default_and_unit(rlweave):
    result = rlweave("train", "counting", "--settings", "--env", "CartPole-v1")
    assert result.code == 0
    lines = result.out.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("agent.lr")]
    assert "size of a step" in lines[number + 1]
    assert "tuned for CartPole-v1; else 0.5" in lines[number]
    assert any("steps" in line and "environment steps" in line and "100" in line for line in lines)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "impala", "ape-x", "pbt", "multi-agent", "maml", "es"])
def test_settings_are_readable_on_a_narrow_terminal(rlweave, monkeypatch, algorithm):
    monkeypatch.setenv("COLUMNS", "80")
    text = rlweave("train", algorithm, "--settings").out
    assert not re.search(r"typing|Optional|Literal|NoneType|dict\[|class ", text)
    helps = [line for line in text.splitlines() if line.startswith("    ")]
    assert max(map(len, helps)) <= 80
    rows = describe_settings(get_algorithm(algorithm).config_class)
    for row in rows:  # neither keys nor types are broken
        (line,) = [line for line in text.splitlines() if line.startswith(f"{row.key} = ")]
        assert line.endswith(f"[{row.type}]")


def test_the_help_names_default_and_unit_of_each_option(rlweave):
    text = " ".join(rlweave("train", "--help").out.replace("│", " ").split())
    assert "is finished first, in environment steps [default: 100000]" in text
    assert "[default: jax]" in text
    for command in ("evaluate", "resume", "plot", "graph", "list"):
        assert rlweave(command, "--help").code == 0


def test_version(rlweave):
    import rlweave as package

    assert rlweave("--version").out == f"rlweave {package.__version__}\n"


def test_the_measured_choice_of_who_acts_is_printed_once_and_written_down(rlweave, tmp_path):
    options = ["--env", "CartPole-v1", "--backend", "torch", "--steps", 64, "--no-presets", "--run-dir", "run"]
    sets = ["agent.acting_backend=auto", "agent.rollout_steps=16", "num_envs=2", "final_episodes=0"]
    result = rlweave("train", "ppo", *options, *[word for text in sets for word in ("--set", text)])
    assert result.code == 0, result.err
    assert result.out.count("measured for 2 observations at once") == 1
    chosen = parse_yaml((tmp_path / "run" / "config.yaml").read_text())["agent"]["acting_backend"]
    assert f"acting on {chosen}:" in result.out


def test_no_algorithm_learns_on_a_backend_that_only_acts(rlweave):
    result = rlweave("train", "ppo", "--env", "CartPole-v1", "--backend", "onnx")
    assert result.code != 0
    assert "the onnx backend acts but cannot learn" in result.err
    assert "--set agent.acting_backend=onnx" in result.err


def test_resume_for_longer_keeps_schedules_as_planned_and_says_so(rlweave, tmp_path):
    small = ["--backend", "torch", "--num-envs", 2, "--set", "agent.rollout_steps=16", "--set", "agent.epochs=1"]
    small += ["--set", "evaluate_every=0", "--set", "final_episodes=0", "--set", "agent.minibatches=1"]
    lr = "agent.lr={type: linear, start: 0.01, end: 0.0}"
    assert (
        rlweave("train", "ppo", "--env", "CartPole-v1", "--steps", 64, "--run-dir", "run", *small, "--set", lr).code
        == 0
    )
    result = rlweave("resume", "run", "--steps", 128)
    assert result.code == 0, result.err
    expected = (
        "agent.lr stays as it was planned: it reaches 0.0 at 64 environment steps, and has this value from there on"
    )
    assert expected in " ".join(result.out.split())
    config = parse_yaml((tmp_path / "run/config.yaml").read_text())
    assert (config["steps"], config["schedule_steps"]) == (128, 64)
    rates = read_metrics(tmp_path / "run/metrics.csv")["train_one_step/learning_rate"]
    assert rates[-1] == 0.0
    assert rlweave("resume", "run", "--steps", 192).code == 0
    assert parse_yaml((tmp_path / "run/config.yaml").read_text())["schedule_steps"] == 64, "the first plan stays"


def test_a_build_that_fails_leaves_nothing_and_the_corrected_command_works(rlweave, tmp_path):
    small = ["--env", "CartPole-v1", "--backend", "torch", "--num-envs", 2, "--steps", 32, "--run-dir", "run"]
    small += ["--set", "agent.rollout_steps=16", "--set", "agent.epochs=1", "--set", "final_episodes=0"]
    wrong = "agent.network=[{type: conv2d, filters: 2, kernel_size: 3}]"
    result = rlweave("train", "ppo", *small, "--set", wrong)
    assert result.code != 0
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists(), sorted((tmp_path / "run").rglob("*"))
    result = rlweave("train", "ppo", *small)
    assert result.code == 0, result.err
    assert "checkpoint step-000000000032: model " in result.out

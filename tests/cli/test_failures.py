"""What the program says when something is wrong that it can know: one clean message, the right exit code."""

import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.ppo import ppo
from rlweave.cli.console import fail
from rlweave.errors import BuildError, ConfigError, EnvError, PlanError
from rlweave.flow.envelope import Envelope
from rlweave.flow.plan_errors import failure
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.sources import parse_yaml, to_yaml

#: A training that acts a little and never updates: fast, on any backend that learns.
SMALL = ("--backend", "torch", "--num-envs", 2, "--set", "agent.rollout_steps=8", "--set", "agent.network=[]")


@pytest.fixture
def numpy_run(rlweave, tmp_path):
    """A run with a checkpoint, made without learning, in `run/`."""
    data = {"env": "CartPole-v1", "backend": "numpy", "num_envs": 1}
    config = resolve_config(ppo.config_class, file=data)
    run = RunDirectory.create("ppo", config.to_data(), command=["rlweave"], path=tmp_path / "run")
    trainer = ppo.make_trainer(config, run)
    trainer.save()
    trainer.close()
    return run


def test_an_environment_that_breaks_inside_a_plan_is_told_in_full(rlweave):
    result = rlweave("train", "ppo", "--env", "tests.cli.broken_envs:Breaks-v0", "--run-dir", "run", *SMALL)
    assert result.code == 1
    assert "operator 'parallel_rollouts' failed" in result.err
    assert "cause: the environment raised ValueError: boom" in result.err
    assert "environment 0, step 3 of its episode" in result.err
    assert 'raise ValueError("boom")' in result.err
    assert result.err.count("Traceback") == 1  # the environment's own, once


def _raised(error, cause):
    try:
        raise error from cause
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "shown", "hidden"),
    [
        (_raised(PlanError("outer"), _raised(BuildError("middle"), EnvError("inner"))), ["middle", "inner"], []),
        (_raised(failure("op", Envelope(None, "op", 0), KeyError("k")), KeyError("k")), ["KeyError: 'k'"], ["above"]),
        (_raised(EnvError("outer"), OSError("detail")), ["outer"], ["detail"]),
        (_raised(ConfigError("outer"), EnvError("retold")), ["outer"], ["retold"]),
    ],
)
def test_causes_are_shown_where_they_add_something(capsys, error, shown, hidden):
    with pytest.raises(SystemExit):
        fail(error)
    printed = capsys.readouterr().err
    assert all(text in printed for text in shown)
    assert not any(text in printed for text in hidden)


def test_a_backend_without_gradients_is_refused_before_anything_is_made(rlweave, tmp_path):
    result = rlweave("train", "ppo", "--env", "CartPole-v1", "--backend", "numpy", "--run-dir", "run")
    assert result.code == 2
    assert "the numpy backend acts but cannot learn" in result.err
    assert "learn with --backend jax" in result.err
    assert not list(tmp_path.iterdir())
    assert rlweave("graph", "ppo", "--env", "CartPole-v1", "--backend", "numpy", "--code", "act").code == 0


@pytest.mark.usefixtures("numpy_run")
def test_resume_refuses_a_backend_without_gradients(rlweave):
    result = rlweave("resume", "run")
    assert result.code == 2
    assert "acts but cannot learn" in result.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["evaluate", "run", "--seed", -1], "--seed"),
        (["plot", "run", "-o", "x.png.xyz"], "no picture format has this ending"),
        (["plot", "run", "-o", "x"], "no picture format has this ending"),
        (["plot", "run", "-o", "missing/x.svg"], "cannot write the picture"),
        (["graph", "counting", "--env", "CartPole-v1", "-o", "missing/x.svg"], "cannot write the picture"),
    ],
)
def test_wrong_values_of_options_are_usage_errors(rlweave, arguments, text):
    assert rlweave("train", "counting", "--env", "CartPole-v1", "--run-dir", "run").code == 0
    result = rlweave(*arguments)
    assert result.code == 2, result.err
    assert text in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("option", ["--code", "--method"])
def test_graph_names_the_nearest_api_method(rlweave, option):
    result = rlweave("graph", "ppo", "--env", "CartPole-v1", "--backend", "numpy", option, "upd")
    assert result.code == 2
    assert "did you mean 'update'?" in result.err


def test_options_that_the_environment_does_not_take_are_a_usage_error(rlweave, tmp_path):
    for env, options, text in [
        ("CartPole-v1", '{"foo": 1}', "CartPole-v1 does not take this option"),
        ("rlweave/GridWorld-v0", '{"world": "4x5"}', "unknown grid world map"),
    ]:
        words = ("train", "ppo", "--env", env, "--run-dir", "run", *SMALL)
        result = rlweave(*words, "--set", f"env_options={options}")
        assert result.code == 2
        assert text in result.err
        assert "where:    env_options" in result.err
        assert "raceback" not in result.err
        assert not list(tmp_path.iterdir())


def test_a_fault_in_the_constructor_of_an_environment_keeps_its_traceback(rlweave):
    words = ("train", "ppo", "--env", "tests.cli.broken_envs:Breaks-v0", *SMALL)
    result = rlweave(*words, "--set", 'env_options={"simulator": "none"}')
    assert result.code == 1
    assert "FileNotFoundError: no simulator 'none'" in result.err
    assert "in __init__" in result.err


def test_the_bare_name_of_a_nested_setting_is_answered_with_its_key(rlweave, tmp_path):
    for words in (["--set", "lr=0.1"], ["--config", "f.yaml"]):
        (tmp_path / "f.yaml").write_text("lr: 0.1\n")
        result = rlweave("train", "counting", "--env", "CartPole-v1", *words)
        assert result.code == 2
        assert "unknown setting 'lr'" in result.err
        assert "did you mean 'agent.lr'?" in result.err


def test_a_training_goes_on_with_its_own_backend_and_is_evaluated_with_any(rlweave, numpy_run):
    before = rlweave("evaluate", "run", "--episodes", 2).out
    config = parse_yaml(numpy_run.config_file.read_text())
    numpy_run.config_file.write_text(to_yaml({**config, "backend": "torch"}))
    result = rlweave("resume", "run")
    assert result.code == 2
    assert "of another backend" in result.err
    assert "'numpy', where the configuration has 'torch'" in result.err
    assert rlweave("evaluate", "run", "--episodes", 2).out == before


def test_a_checkpoint_of_another_environment_is_not_evaluated(rlweave, numpy_run):
    config = parse_yaml(numpy_run.config_file.read_text())
    numpy_run.config_file.write_text(to_yaml({**config, "env": "Acrobot-v1"}))
    result = rlweave("evaluate", "run")
    assert result.code == 2
    assert "of another environment" in result.err
    assert "'CartPole-v1', where the configuration has 'Acrobot-v1'" in result.err


def test_a_checkpoint_that_names_neither_backend_nor_environment_is_taken(rlweave, numpy_run, monkeypatch):
    from rlweave.algorithms import trainer

    load = trainer.load_checkpoint

    def load_old(path):
        arrays, meta = load(path)
        return arrays, {key: value for key, value in meta.items() if key not in ("backend", "env")}

    monkeypatch.setattr(trainer, "load_checkpoint", load_old)
    assert rlweave("evaluate", "run", "--episodes", 1).code == 0


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_a_run_of_an_unknown_environment_is_a_usage_error(rlweave, numpy_run, command):
    text = numpy_run.config_file.read_text()
    numpy_run.config_file.write_text(text.replace("CartPole-v1", "CartPol-v1"))
    result = rlweave(command, "run")
    assert result.code == 2
    assert "did you mean 'CartPole-v1'?" in result.err

"""`rlweave.train`: iterates reports and returns the run; callbacks, the same everywhere."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import rlweave
from rlweave.envs import resolve
from rlweave.errors import BackendError, ConfigError, EnvError, ExecutionError
from rlweave.runs.metrics import read_metrics
from tests.algorithms import python_envs
from tests.algorithms.python_envs import Failing, Nothing, Telling, Walk, make_walk

# Evolution strategies learn on NumPy: no framework has to be imported.
SMALL = {
    "backend": "numpy",
    "num_envs": 2,
    "steps": 120,
    "report_every": 40,
    "evaluate_every": 40,
    "evaluation_episodes": 2,
    "checkpoint_every": 60,
    "tensorboard": False,
    "agent": {"pairs": 2, "noise_size": 10_000, "network": [{"type": "dense", "units": 4}]},
}


@pytest.fixture(autouse=True)
def calls():
    python_envs.CALLS.clear()
    return python_envs.CALLS


def test_reports_are_iterated_and_the_run_has_what_came_of_it(tmp_path):
    run = rlweave.train("es", Walk, run_dir=tmp_path / "run", **SMALL)
    reports = list(run)
    assert [report["env_steps_sampled"] for report in reports] == [40, 80, 120]
    assert run.reports == reports
    assert run.ended == "complete"
    assert run.path == tmp_path / "run"
    written = read_metrics(run.path / "metrics.csv")
    assert set(written) == set(run.metrics)
    np.testing.assert_array_equal(written["evaluation_return"], run.metrics["evaluation_return"])
    best = max(report["evaluation_return"] for report in reports)
    assert run.evaluate(3).mean_return == best  # the environment has no chance in it
    look = np.zeros(1, np.float32)
    assert run.load().act(look) == rlweave.load(run.path).act(look)
    assert list(run) == []
    for report in rlweave.train("es", make_walk, **SMALL):
        assert report["env_steps_sampled"] == 40
        break


def test_nothing_is_written_without_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = rlweave.train("es", Walk, run_dir=tmp_path / "run", **SMALL).finish()
    run = rlweave.train("es", Walk, **SMALL)
    policy = run.load()  # which trains first
    assert run.ended == "complete"
    assert run.path is None
    assert run.checkpoint is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert run.metrics["evaluation_return"].tolist() == written.metrics["evaluation_return"].tolist()
    looks = np.arange(6, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(policy.act(looks), written.load().act(looks))
    assert run.evaluate(2).mean_return == written.evaluate(2).mean_return


def test_who_leaves_the_loop_goes_on_or_ends_there(tmp_path):
    with rlweave.train("es", Walk, run_dir=tmp_path / "run", **SMALL) as run:
        next(run)
        assert run.ended is None
        assert run.load().act([0.0]) in (0, 1)
        assert [report["env_steps_sampled"] for report in run] == [80, 120]
    assert run.ended == "complete"
    with rlweave.train("es", Walk, run_dir=tmp_path / "other", **SMALL) as run:
        next(run)
    assert run.ended == "closed"
    assert run.checkpoint.name == "step-000000000040"
    with pytest.warns(UserWarning, match="never begun"):
        rlweave.train("es", Walk, **SMALL)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("CartPole-v1", "CartPole-v1"),
        (Walk, "tests.algorithms.python_envs:Walk"),
        (make_walk, "tests.algorithms.python_envs:make_walk"),
        ("tests.algorithms.python_envs:Walk", "tests.algorithms.python_envs:Walk"),
        (lambda: Walk(3), "passed/lambda-v"),
        (lambda: gymnasium.make("CartPole-v1"), "passed/lambda-v"),
    ],
)
def test_environments_are_ids_classes_and_functions(env, name):
    run = rlweave.train("es", env, **SMALL)
    assert run.config.env.startswith(name)
    assert next(run)["env_steps_sampled"] >= 40
    run.close()
    assert run.evaluate(1).returns.shape == (1,)


def test_options_of_an_environment_are_a_setting():
    run = rlweave.train("es", Walk, env_options={"steps": 3}, **SMALL).finish()
    assert run.evaluate(1).lengths.tolist() == [3]


def test_what_is_wrong_is_said_before_anything_is_made(tmp_path):
    for wrong, error, named in (
        ({"env": Walk()}, ConfigError, "given by what makes it"),
        ({"lr": 0.1}, ConfigError, r"unknown setting 'lr'[\s\S]*agent={'lr': ...}"),
        ({"agent": {"lrr": 0.1}}, ConfigError, r"agent.lrr"),
        ({"backend": "numpi"}, BackendError, "unknown backend"),
        ({"algorithm": "ppo", "agent": {}}, BackendError, "acts but cannot learn"),
        ({"backend": "onnx"}, BackendError, "acts but cannot learn"),
        ({"algorithm": "ess"}, ConfigError, "unknown algorithm"),
        ({"env": "CartPoll-v1"}, ConfigError, "CartPole-v1"),
        ({"env": "tests.algorithms.python_envs:Wolk"}, ConfigError, "Wolk"),
        ({"callbacks": [Nothing]}, ConfigError, "on_report, on_evaluation, on_checkpoint, on_end"),
        ({"callbacks": ["tests.algorithms.python_envs:Teling"]}, ConfigError, "Telling"),
        ({"callbacks": ["nowhere.at.all:C"]}, ConfigError, "cannot be imported"),
        ({"callbacks": ["telling"]}, ConfigError, "module:Class"),
        ({"callbacks": [":Telling"]}, ConfigError, "module:Class"),
        ({"callbacks": "tests.algorithms.python_envs:Telling"}, ConfigError, "a list"),
        ({"callbacks": Nothing()}, ConfigError, "a list"),
    ):
        given = {"algorithm": "es", "env": Walk, "run_dir": tmp_path / "run", **SMALL, **wrong}
        with pytest.raises(error, match=named):
            rlweave.train(**given)
        assert not (tmp_path / "run").exists()


def test_an_environment_of_a_script_is_known_to_that_process_only():
    with pytest.raises(EnvError, match=r"passed as an object[\s\S]*module:Class"):
        resolve("passed/Gone-v0")


# -- callbacks ----------------------------------------------------------------------------------------------------


def test_a_callback_is_told_everything_and_adds_metrics(tmp_path, calls):
    class Flag:
        def on_report(self, run, report):
            return {"early": run.env_steps < 100}

    run = rlweave.train("es", Walk, run_dir=tmp_path / "run", callbacks=[Telling(), Flag()], **SMALL).finish()
    assert [steps for kind, steps in calls if kind == "report"] == [40, 80, 120]
    assert [name for kind, name in calls if kind == "checkpoint" and name != "best"] == [
        "step-000000000060",
        "step-000000000120",
    ]
    assert ("checkpoint", "best") in calls
    assert calls[-1] == ("end", "complete")
    written = read_metrics(run.path / "metrics.csv")
    assert written["telling"].tolist() == [2.5] * 3
    assert written["early"].tolist() == [1, 1, 0]
    np.testing.assert_array_equal(written["half"], written["evaluation_return"] / 2)
    np.testing.assert_array_equal(
        [value for kind, value in calls if kind == "evaluation"], written["evaluation_return"]
    )


def test_a_callback_stops_the_training(tmp_path):
    class Enough:
        def on_report(self, run, report):
            if report["env_steps_sampled"] >= 80:
                run.stop("it is enough")

    run = rlweave.train("es", Walk, run_dir=tmp_path / "run", callbacks=[Enough()], **SMALL).finish()
    assert run.ended == "it is enough"
    assert run.env_steps == 80
    assert run.checkpoint.name == "step-000000000080"


@pytest.mark.parametrize(("more", "named"), [({}, "evaluation_return"), ({"evaluate_every": 0}, "episode_return")])
def test_a_training_ends_when_it_reaches_a_return(more, named):
    run = rlweave.train("es", Walk, **SMALL | more, stop_at_return=0.0).finish()
    assert run.env_steps == 40
    assert f"{named} " in run.ended
    assert "stop_at_return=0" in run.ended
    run = rlweave.train("es", Walk, **SMALL | more, stop_at_return=5.5).finish()
    assert run.ended == "complete"


def test_errors_inside_callbacks_are_named(tmp_path, calls):
    with pytest.raises(ExecutionError, match=r"python_envs:Failing.on_evaluation, at 40[\s\S]*1 / 0") as caught:
        rlweave.train("es", Walk, callbacks=[Telling, Failing], **SMALL).finish()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert calls[-1][0] == "end"
    assert "ZeroDivisionError" in calls[-1][1]

    class Wrong:
        def __init__(self, metrics):
            self.metrics = metrics

        def on_report(self, run, report):
            return self.metrics

    taken, huge = {"env_steps_sampled": 1}, {"huge": 10**400}
    for metrics, what in (
        ({"telling": "x"}, "no metrics"),
        (huge, "no metrics"),
        (taken, "exists already"),
        (3, "no metrics"),
    ):
        with pytest.raises(ExecutionError, match=what):
            rlweave.train("es", Walk, callbacks=[Wrong(metrics)], **SMALL).finish()


def test_the_best_weights_are_those_of_the_best_evaluation():
    class Worse:
        """Spoils the policy after the first evaluation."""

        def on_report(self, run, report):
            agent = run.trainer.agent
            agent.set_weights({path: np.zeros_like(value) for path, value in agent.get_weights().items()})

    first = rlweave.train("es", Walk, **SMALL | {"steps": 40}).finish().load()
    spoiled = rlweave.train("es", lambda: Walk(4), callbacks=[Worse()], **SMALL).finish()
    best = spoiled.trainer.best_model
    assert best is not None
    assert first.agent.name == spoiled.load().agent.name
    assert spoiled.evaluate(2).mean_return == spoiled.metrics["best_evaluation_return"][-1]


SCRIPT = """
import gymnasium, numpy as np, rlweave
from gymnasium import spaces

class Local(gymnasium.Env):
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.at += 1
        return np.full(1, self.at, np.float32), 1.0, self.at == 4, False, {}

if __name__ == "__main__":
    run = rlweave.train("es", Local, placement="environments_apart", **SETTINGS).finish()
    print(run.config.env, run.evaluate(2).mean_return, run.load().act([1.0]) in (0, 1))
"""


@pytest.mark.slow
def test_a_class_of_the_user_trains_on_ray_with_callbacks_here(ray_engine, calls):
    class Own(Walk):
        pass

    settings = {
        **SMALL,
        "backend": "torch",
        "placement": {"workers": 2},
        "engine": "ray",
        "object_store_mb": 80,
        "steps": 128,
    }
    settings["agent"] = {"rollout_steps": 16, "minibatches": 2, "acting_backend": "numpy"}
    run = rlweave.train("ppo", Own, callbacks=[Telling()], **settings).finish()
    assert run.ended == "complete"
    assert run.load().act([1.0]) in (0, 1)
    assert {kind for kind, _ in calls} == {"report", "evaluation", "end"}


def test_a_class_of_a_script_travels_to_processes(tmp_path):
    script = tmp_path / "script.py"
    settings = {**SMALL, "steps": 40}
    script.write_text(f"SETTINGS = {settings!r}\n{SCRIPT}", encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["passed/Local-v0", "4.0", "True"]

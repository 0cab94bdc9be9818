"""`--callback` and `stop_at_return` on the command line."""

import pytest

from rlweave.runs.metrics import read_metrics
from tests.algorithms import python_envs

ES = (
    *("train", "es", "--env", "tests.algorithms.python_envs:Walk", "--backend", "numpy", "--num-envs", "2"),
    *("--set", "agent.pairs=2", "--set", "agent.noise_size=10000", "--set", "report_every=40", "--run-dir", "run"),
    *("--set", "evaluate_every=40", "--set", "evaluation_episodes=2", "--set", "tensorboard=false"),
)
TELLING = "tests.algorithms.python_envs:Telling"


@pytest.fixture(autouse=True)
def calls():
    python_envs.CALLS.clear()
    return python_envs.CALLS


def test_callbacks_are_kept_in_the_run_and_called_again_by_a_resume(rlweave, tmp_path, calls):
    assert rlweave(*ES, "--steps", "80", "--callback", TELLING).code == 0
    assert [steps for kind, steps in calls if kind == "report"] == [40, 80]
    calls.clear()
    assert rlweave("resume", "run", "--steps", "160").code == 0
    assert [steps for kind, steps in calls if kind == "report"] == [120, 160]
    assert calls[-1] == ("end", "complete")
    assert read_metrics(tmp_path / "run" / "metrics.csv")["telling"].tolist() == [2.5] * 4


def test_a_failing_callback_is_named(rlweave):
    result = rlweave(*ES, "--steps", "80", "--callback", "tests.algorithms.python_envs:Teling")
    assert result.code == 2
    assert "Telling" in result.err
    result = rlweave(*ES, "--steps", "80", "--callback", "tests.algorithms.python_envs:Failing")
    assert result.code == 1
    assert "error: a callback failed: ZeroDivisionError" in result.err
    assert "tests.algorithms.python_envs:Failing.on_evaluation, at 40 environment steps" in result.err


def test_a_training_that_reached_its_return_is_evaluated_and_complete(rlweave, tmp_path):
    result = rlweave(*ES, "--steps", "4000", "--set", "stop_at_return=0")
    assert result.code == 0
    assert "stopped at 40 environment steps: evaluation_return" in result.out
    assert "greedy evaluation of the best checkpoint" in result.out
    assert len(read_metrics(tmp_path / "run" / "metrics.csv")["evaluation_return"]) == 1

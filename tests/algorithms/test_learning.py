"""Agents learn: one seed of every task of `benchmarks/learning.py` on every backend; `make learning` runs all seeds."""

import itertools
import json

import pytest

from benchmarks.learning import BACKENDS, TASKS, train_task

#: Of the second tier: one task for each algorithm.
ON_TENSORFLOW = [("ppo-cartpole", "tensorflow"), ("dqn-gridworld", "tensorflow")]


@pytest.mark.learning
@pytest.mark.parametrize(("task", "backend"), [*itertools.product(TASKS, BACKENDS), *ON_TENSORFLOW])
def test_learns(task, backend, learning_seed, tmp_path):
    row = train_task(task, backend, learning_seed, tmp_path / "run")
    assert row["steps"] <= row["budget"]
    assert row["ok"], f"{row['what']}: {row['result']}, needed {row['threshold']}"
    # the row is plain data, and says how to repeat the run
    assert json.loads(json.dumps(row)) == row
    assert row["command"].startswith(
        f"rlweave train {TASKS[task].algorithm} --env {TASKS[task].env} --backend {backend}"
    )


@pytest.mark.parametrize("task", TASKS)
def test_a_threshold_is_no_formality(task):
    """What an agent reaches that has learned nothing is not enough, and no value at all neither."""
    untrained = {
        "ppo-cartpole": 25.0,
        "dqn-cartpole": 25.0,
        "ppo-pendulum": -1200.0,
        "ppo-catch": -0.6,
        "dqn-gridworld": 5.0,
    }
    assert not TASKS[task].reached(untrained[task])
    assert not TASKS[task].reached(float("nan"))

"""Agents learn: one seed of every task of `benchmarks/learning.py` on every backend; `make learning` runs all seeds."""

import json

import pytest

from benchmarks.learning import TASKS, train_task

#: Of the second tier: one task for each algorithm.
ON_TENSORFLOW = [("ppo-cartpole", "tensorflow"), ("dqn-gridworld", "tensorflow")]
#: Trained on one backend here, on all by `make learning`.
ON_ONE_BACKEND = {"impala-cartpole": "torch", "appo-cartpole": "jax"}
MINUTES = {"ppo-pendulum": 2, "dqn-cartpole": 1.5, "ppo-catch": 1}


@pytest.mark.learning
@pytest.mark.parametrize(
    ("task", "backend"),
    [
        pytest.param(task, backend, marks=pytest.mark.long(minutes=MINUTES.get(task, 0.5)))
        for task, backend in [
            *((task, b) for task in TASKS for b in TASKS[task].backends if ON_ONE_BACKEND.get(task, b) == b),
            *ON_TENSORFLOW,
        ]
    ],
)
def test_learns(task, backend, learning_seed, tmp_path):
    # all of the budget only where one seed does not do: `make learning` trains to its end
    row = train_task(task, backend, learning_seed, tmp_path / "run", until_clear=True)
    assert row["steps"] <= row["budget"]
    assert row["ok"], f"{row['what']}: {row['result']}, needed {row['threshold']}"
    # the row is plain data, and says how to repeat the run
    assert json.loads(json.dumps(row)) == row
    assert row["command"].startswith(
        f"rlweave train {TASKS[task].algorithm} --env {TASKS[task].env} --backend {backend}"
    )


@pytest.mark.learning
@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=pytest.mark.long(minutes=1)) for task in ("ppo-cartpole", "dqn-cartpole")]
)
def test_learns_with_two_workers_on_ray(task, tmp_path):
    pytest.importorskip("ray")
    settings = {"engine": "ray", "workers": 2, "object_store_mb": 80}
    row = train_task(task, "torch", 0, tmp_path / "run", settings, until_clear=True)
    assert row["ok"], f"{row['what']}: {row['result']}, needed {row['threshold']}"


@pytest.mark.parametrize("task", TASKS)
def test_a_threshold_is_no_formality(task):
    """What an agent reaches that has learned nothing is not enough, and no value at all neither."""
    untrained = {
        "ppo-cartpole": 25.0,
        "dqn-cartpole": 25.0,
        "impala-cartpole": 25.0,
        "impala-catch": -0.6,
        "appo-cartpole": 25.0,
        "ppo-pendulum": -1200.0,
        "ppo-catch": -0.6,
        "dqn-gridworld": 5.0,
        **{f"{algorithm}-cue-{layer}": 0.5 for algorithm in ("ppo", "dqn") for layer in ("lstm", "gru")},
        # of the controls: what an agent reaches that sees the cue where it should not
        **{f"{algorithm}-cue-feedforward": 1.0 for algorithm in ("ppo", "dqn")},
    }
    assert not TASKS[task].reached(untrained[task])
    assert not TASKS[task].reached(float("nan"))

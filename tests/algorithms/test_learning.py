"""Agents learn: one seed of every task of `benchmarks/learning.py` on every backend; `make learning` runs all seeds."""

import json
from pathlib import Path

import pytest

from benchmarks.learning import ENGINES, ON_RAY, TASKS, settings_on, table, train_task
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placement import check_engine
from rlweave.algorithms.registry import get_algorithm

#: Too long for every change: `make learning` trains them, and a shortened run stands in the test that is named.
SHORTENED = {"maml-sine": "test_maml.py", "multi-agent-cartpole": "test_multi_agent.py"}
#: What takes longer than the others on one core.
MINUTES = {
    **{f"{algorithm}-pendulum": minutes for algorithm, minutes in (("sac", 0.7), ("td3", 0.75), ("ddpg", 0.6))},
    "ape-x-cartpole": 0.6,
}
#: One backend here or none, all in `make learning`: plans whose agents are the same on all backends as others', and
#: further tasks of algorithms that have others on each backend. PPO and DQN learn CartPole or GridWorld on all of them,
#: and masked recall, which takes a memory; IMPALA learns CartPole. MAML learns sine waves (`SHORTENED`), and its
#: gradients on the plane, too, are compared with finite differences. SAC, TD3, DDPG share a graph: each on one.
HERE = {
    "ape-x-cartpole": ("torch",),
    "es-cartpole": ("jax",),
    "impala-cartpole": ("torch",),
    "appo-cartpole": ("jax",),
    "dqn-cartpole": (),
    "pqn-cartpole": (),  # on torch below: 16 s on one core
    "a2c-masked-recall": (),
    "impala-masked-recall": (),
    "ppo-pendulum": ("jax",),
    "ppo-catch": ("torch",),
    "sac-inverted-pendulum": (),
    "td3-inverted-pendulum": (),
    "sac-pendulum": ("jax",),
    "td3-pendulum": ("jax",),
    "ddpg-pendulum": ("torch",),
    "maml-point": (),
    "impala-catch": (),
    "ppo-cue-lstm": ("torch",),
    **dict.fromkeys(("ppo-cue-gru", "dqn-cue-lstm", "dqn-cue-gru", "ppo-cue-feedforward", "dqn-cue-feedforward"), ()),
}


@pytest.mark.learning
@pytest.mark.parametrize(
    ("task", "backend"),
    [
        *(
            pytest.param(task, backend, marks=pytest.mark.long(minutes=MINUTES.get(task, 0.2)))
            for task in TASKS
            for backend in HERE.get(task, TASKS[task].backends)
            if task not in SHORTENED
        ),
        ("ppo-cartpole", "tensorflow"),
        ("dqn-gridworld", "tensorflow"),
        pytest.param("ddpg-pendulum", "tensorflow", marks=pytest.mark.thorough),
        pytest.param("pqn-cartpole", "torch", marks=pytest.mark.thorough),
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
@pytest.mark.long(minutes=0.5)
@pytest.mark.parametrize("task", ["ppo-cartpole", pytest.param("a3c-cartpole", marks=pytest.mark.thorough)])
def test_learns_with_two_workers_on_ray(task, ray_engine, tmp_path):
    """One plan in rounds, one that gathers gradients of other processes as they come; `make learning` has all."""
    row = train_task(task, "torch", 0, tmp_path / "run", ENGINES["ray"], until_clear=True)
    assert row["ok"], f"{row['what']}: {row['result']}, needed {row['threshold']}"


@pytest.mark.parametrize(
    ("engine", "task"), [*(("local", task) for task in TASKS), *(("ray", task) for task in ON_RAY)]
)
def test_what_make_learning_trains_can_be_trained_within_its_budget(engine, task):
    spec = get_algorithm(TASKS[task].algorithm)
    sets = {**TASKS[task].settings, "env": TASKS[task].env, **settings_on(engine, task)}
    config = resolve_config(spec.config_class, presets=spec.presets[TASKS[task].env], sets=sets)
    check_engine(config)
    rollout = getattr(getattr(config, "agent", None), "rollout_steps", 1) * config.num_envs  # an item at most
    assert -(-config.steps // rollout) * rollout <= TASKS[task].budget


@pytest.mark.parametrize("task", TASKS)
def test_a_threshold_is_no_formality(task):
    """What an agent reaches that has learned nothing is not enough, and no value at all neither."""
    untrained = {
        "ppo-cartpole": 25.0,
        "dqn-cartpole": 25.0,
        "pqn-cartpole": 25.0,
        "a2c-cartpole": 25.0,
        "a3c-cartpole": 25.0,
        "ape-x-cartpole": 25.0,
        "es-cartpole": 25.0,
        "maml-sine": 0.9,
        "maml-point": 0.2,
        "impala-cartpole": 25.0,
        "impala-catch": -0.6,
        "appo-cartpole": 25.0,
        "ppo-pendulum": -1200.0,
        **{f"{algorithm}-pendulum": -1200.0 for algorithm in ("sac", "td3", "ddpg")},
        **{f"{algorithm}-inverted-pendulum": 10.0 for algorithm in ("sac", "td3")},
        "ppo-catch": -0.6,
        "dqn-gridworld": 5.0,
        "multi-agent-cartpole": 25.0,
        **{f"{algorithm}-cue-{layer}": 0.5 for algorithm in ("ppo", "dqn") for layer in ("lstm", "gru")},
        # the best that is possible without a memory, without the mask, or of one leaf
        **{f"{algorithm}-masked-recall": 0.75 for algorithm in ("ppo", "a2c", "impala", "dqn")},
        # of the controls: what an agent reaches that sees the cue where it should not
        **{f"{algorithm}-cue-feedforward": 1.0 for algorithm in ("ppo", "dqn")},
    }
    assert not TASKS[task].reached(untrained[task])
    assert not TASKS[task].reached_by_seed(untrained[task])
    assert not TASKS[task].reached(float("nan"))


def test_the_page_of_results_is_that_of_the_numbers():
    docs = Path(__file__).parents[2] / "docs"
    rows = json.loads((docs / "learning.json").read_text(encoding="utf-8"))["rows"]
    assert (docs / "learning.md").read_text(encoding="utf-8") == table(rows)
    for row in rows:
        assert row["ok"] == (TASKS[row["task"]].reached_by_seed(row["result"]) and row["steps"] <= row["budget"])

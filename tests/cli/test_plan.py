"""`rlweave plan`: every algorithm's plan can be looked at, and looking starts nothing."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rlweave.algorithms.registry import algorithm_names
from rlweave.envs import VectorEnv

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def nothing_steps(monkeypatch):
    """Fails when an environment is reset or stepped."""

    def refuse(*arguments, **settings):
        raise AssertionError("an environment was started")

    monkeypatch.setattr(VectorEnv, "step", refuse)
    monkeypatch.setattr(VectorEnv, "reset", refuse)


WORKERS_ON_NUMPY = ["--workers", 2, "--set", "agent.acting_backend=numpy"]
ON_FLOATS = [*WORKERS_ON_NUMPY, "--env", "Pendulum-v1"]
OPTIONS = {
    "ddpg": ON_FLOATS,
    "maml": ["--workers", 2, "--env", "rlweave/SineTasks-v0"],
    "multi-agent": ["--workers", 2, "--env", "rlweave/MultiCartPole-v0"],
    "pbt": ["--set", "trial_algorithm=ppo"],
    "sac": ON_FLOATS,
    "td3": ON_FLOATS,
}
"""Of algorithms that take other settings than `WORKERS_ON_NUMPY`."""


@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize("algorithm", algorithm_names())
def test_every_algorithm_explains_and_draws_its_plan(rlweave, tmp_path, nothing_steps, algorithm, engine):
    options = ["--num-envs", 4, "--engine", engine, *OPTIONS.get(algorithm, WORKERS_ON_NUMPY)]
    explained = rlweave("plan", algorithm, "--explain", *options)
    assert explained.code == 0, explained.err
    operators, edges = explained.out.split("\n\n")[:2]
    assert f"({engine})" in operators
    assert "report_metrics" in operators
    assert "report_metrics" in edges
    assert "Resources on a cluster" in explained.out
    assert (
        f"Placement {'local' if engine == 'local' else 'single_learner_coarse'}: " in explained.out
        or algorithm == "pbt"
    )
    assert rlweave("plan", algorithm, *options).out == explained.out, "it is the default"
    drawn = rlweave("plan", algorithm, "--draw", *options)
    assert drawn.out == "dataflow plan: plan.svg\n"
    names = [
        box.get("data-name")
        for box in ElementTree.parse(tmp_path / "plan.svg").iter(f"{SVG}rect")
        if box.get("class") == "operator"
    ]
    assert [line.split()[0] for line in operators.splitlines()[3:]] == names


def test_the_picture_in_the_readme_is_that_of_the_plan(rlweave, tmp_path):
    root = Path(__file__).parents[2]
    command = "rlweave plan dqn --workers 2 --num-envs 2 --draw"
    assert command in (root / "README.md").read_text()
    assert rlweave(*command.split()[1:]).code == 0
    drawn = (tmp_path / "plan.svg").read_text()
    assert (root / "docs/dqn-plan.svg").read_text() == drawn, f"make it anew: {command} -o docs/dqn-plan.svg"


def test_looking_at_a_plan_for_ray_begins_no_cluster():
    code = (
        "import sys\n"
        "from rlweave.cli import main\n"
        "try:\n"
        "    main(['plan', 'ppo', '--engine', 'ray', '--num-envs', '2', '--workers', '2', '--backend', 'numpy'])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        "assert 'ray' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 actors (ray)" in done.stdout


def rows_of(text, title):
    """The rows of a table: its cells, which are two spaces apart."""
    lines = text.split(f"{title}")[1].split("\n\n")[0].splitlines()[3:]
    return [re.split("  +", line.strip()) for line in lines]


def test_devices_of_one_process_are_with_its_fragment(rlweave):
    told = rlweave("plan", "ppo", "--set", "agent.replicas=2", "--set", "agent.acting_backend=numpy").out
    assert [row[3] for row in rows_of(told, "Placement local")] == ["host", "numpy", "jax, 2 devices"]


def test_fragments_processes_and_borders_of_a_placement(rlweave):
    words = ["plan", "ppo", "--backend", "torch", "--set", "agent.acting_backend=numpy", "--num-envs", "4"]
    apart = rlweave(*words, "--placement", "environments_apart", "--set", "env_timeout=3").out
    fragments, borders = rows_of(apart, "Placement environments_apart"), rows_of(apart, "Borders")
    rule = "replace, after 3 s"
    assert fragments == [
        ["environments", "environment process", "4", "host", "seed, worker, environment", rule],
        ["policy", "driver", "1", "numpy", "seed", "the training ends"],
        ["learner", "driver", "1", "torch", "seed", "the training ends"],
    ]
    # as in the shared memory: an action is an int64, an observation four float32, a reward a float64, the flags a byte
    assert borders == [
        ["driver", "environment process", "action", "8", "sync, shared memory", "1 each", "0", rule],
        [
            "environment process",
            "driver",
            "observation, reward, flags",
            "25",
            "sync, shared memory",
            "1 each",
            "0",
            rule,
        ],
    ]
    lagging = ["--engine", "ray", "--workers", "2", "--set", "gather=async", "--set", "max_lag=1"]
    rollout, weights = rows_of(rlweave(*words, *lagging, "--set", "agent.rollout_steps=8").out, "Borders")
    assert rollout == ["worker", "driver", "SampleBatch", f">= {8 * 2 * (16 + 16 + 4 + 6)}", "async", "2", "1",
                       "stop, after 600 s"]  # fmt: skip
    layers = (4 * 64 + 64) + (64 * 64 + 64) + (64 * 2 + 2)
    assert weights[:4] == ["driver", "worker", "weights", f"{4 * layers:,}"]
    shards = ["plan", "ape-x", "--engine", "ray", "--backend", "torch", "--set", "agent.acting_backend=numpy"]
    assert "shard" in [row[1] for row in rows_of(rlweave(*shards).out, "Placement single_learner_coarse")]


def test_a_picture_may_be_mermaid_text(rlweave, tmp_path):
    assert rlweave("plan", "ppo", "--backend", "numpy", "-o", "plan.mmd").code == 0
    text = (tmp_path / "plan.mmd").read_text()
    assert text.startswith("flowchart LR")
    assert rlweave("plan", "ppo", "--backend", "numpy", "-o", "plan.md").code == 0
    assert (tmp_path / "plan.md").read_text() == f"```mermaid\n{text}```\n"


def test_settings_change_the_plan(rlweave):
    asynchronous = rlweave("plan", "ppo", "--backend", "numpy", "--set", "gather=async").out
    assert "gather_async" in asynchronous
    assert "gather_sync" not in asynchronous
    fused = rlweave("plan", "dqn", "--backend", "numpy", "--placement", "fused")
    assert "FusedLearner" in fused.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppo", "--explain", "--draw"], "one thing at a time"),
        (["ppo", "--explain", "--processes"], "one thing at a time"),
        (["ppo", "--backend", "numpy", "-o", "no/such/directory/plan.svg"], "cannot write the picture"),
        (["counting"], "give the Algorithm an agent, a worker and a plan"),
        (["ppo", "--backend", "numpy", "--engine", "ray", "--workers", "3"], "cannot be divided evenly"),
        (["poo"], "did you mean 'ppo'"),
    ],
)
def test_what_cannot_be_shown_says_why(rlweave, words, message):
    result = rlweave("plan", *words)
    assert result.code == 2
    assert message in result.err

"""The code on the documentation's pages runs as it stands, page after page, and the parts hold what the pages say."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import rlweave
from rlweave.algorithms import registry
from rlweave.components import PPOLoss
from rlweave.errors import PlanError
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest

PAGES = Path(__file__).parent.parent / "docs" / "rlgraph"
PLAN_PAGES = PAGES.parent / "plans"


def run_page(name, scope=None):
    """What the code of a page defines, after the code of the pages before it."""
    scope = {} if scope is None else scope
    for block in re.findall(r"```python\n(.*?)```", (PAGES / name).read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, name, "exec"), scope)
    return scope


@pytest.fixture(scope="module")
def memory():
    return run_page("figure-2.md")


def test_every_page_is_listed():
    listed = re.findall(r"\]\((.*?\.md)\)", (PAGES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in PAGES.glob("*.md") if path.name != "README.md")
    for path in re.findall(r"python (benchmarks/\w+\.py)", (PAGES / "README.md").read_text(encoding="utf-8")):
        assert (PAGES.parent.parent / path).exists()


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_the_memory_of_figure_2(memory, backend):
    # the priorities of the case on sum trees, alpha 1: probabilities and weights
    records = Dict(state=FloatBox(shape=(2,)), inner=Dict(action=IntBox(9)), add_batch_rank=True)
    spaces = {
        "records": records,
        "indices": IntBox(4, add_batch_rank=True),
        "td_errors": FloatBox(add_batch_rank=True),
    }
    component = memory["PrioritizedMemory"](depth=2, alpha=1.0)
    test = ComponentTest(component, spaces, backend=backend, rng="portable", seed=3)
    rows = {"state": np.arange(8, dtype=np.float32).reshape(4, 2), "inner": {"action": np.arange(4, dtype=np.int32)}}
    test.test("insert", rows)
    test.test("update_priorities", np.arange(4, dtype=np.int32), np.array([0.5, 1, 1, 3], np.float32))
    sample, indices, weights = test.test("sample", 20_000)
    np.testing.assert_array_equal(sample["inner/action"], indices)
    np.testing.assert_array_equal(sample["state"], rows["state"][indices])
    np.testing.assert_allclose(
        np.bincount(indices, minlength=4) / 20_000, [0.0909091, 0.1818182, 0.1818182, 0.5454545], atol=0.012
    )
    expected = np.array([1, 0.7578583, 0.7578583, 0.4883593])
    np.testing.assert_allclose(weights, expected[indices], rtol=1e-4)
    test.test("insert", rows)  # over the oldest
    assert test.executor.get_weights()["memory/inserted"] == 8


def test_update_and_observe_of_figure_3_and_the_phases_of_its_build(memory, capsys):
    scope = run_page("algorithm-1.md", run_page("figure-3.md", dict(memory)))
    printed = capsys.readouterr().out
    assert "def update(" in printed
    assert "the build is stuck" in printed
    assert scope["losses"][-1] < scope["losses"][0]


def test_the_recurrent_policy_of_listing_1():
    scope = run_page("listing-1.md")
    weights = scope["test"].executor.get_weights()
    assert {path.rpartition("/")[2] for path in weights} == {"kernel", "recurrent_kernel", "bias", "log_std-cont"}


def test_the_agent_api_of_listing_2():
    scope = run_page("listing-2.md")
    assert scope["agent"].env_steps == 200


def test_the_page_on_python():
    scope = {"__name__": "pages"}
    for block in re.findall(
        r"```python\n(.*?)```", (PAGES.parent / "python.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        exec(compile(block, "python.md", "exec"), scope)
    assert scope["watched"].ended in ("it walks", "complete")


def test_the_page_on_adding_an_algorithm(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "pages"}
    page = (PAGES.parent / "add-an-algorithm.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "add-an-algorithm.md", "exec"), scope)
    assert scope["run"].ended == "complete"
    assert scope["run"].reports[-1]["updates"] == 89  # one for each step after the first ten but the last
    assert scope["on_policy"].reports[-1]["updates"] == 4  # rollouts of 16 steps in 8 environments
    # its estimates and loss are those of A2C with lambda 1, so is its update
    opened = {"type": "linear", "start": 3e-4, "end": 0.0}
    own = {"agent": {"lr": opened, "normalize_observations": True, "optimizer": {"type": "adam"}}}
    given = {"steps": 512, "backend": "torch", "evaluate_every": 0, "presets": False, **own}
    ours, theirs = (rlweave.train(name, "CartPole-v1", **given).finish().reports[-1] for name in ("reinforce", "a2c"))
    for name in ("train_one_step/policy_loss", "train_one_step/value_loss"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
    assert "def update" in capsys.readouterr().out


def test_the_page_on_changing_a_loss(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "pages"}
    blocks = re.findall(
        r"```python\n(.*?)```", (PAGES.parent / "change-a-loss.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len([line for line in blocks[0].splitlines() if line]) <= 15
    for block in blocks:
        exec(compile(block, "change-a-loss.md", "exec"), scope)
    assert scope["run"].ended == "complete"
    assert scope["tuned"].trainer.agent.executor.root.loss.penalty == 0.5
    given = {name: FloatBox(add_batch_rank=True) for name in ("log_probs", "old_log_probs", "advantages", "values")}
    given |= {name: FloatBox(add_batch_rank=True) for name in ("returns", "entropies")}
    rows = {name: np.random.default_rng(seed).normal(size=5).astype(np.float32) for seed, name in enumerate(given)}
    penalized, plain = (
        ComponentTest(loss(normalize_advantages=False), given, backend="torch").test("loss", *rows.values())[0]
        for loss in (scope["PenalizedLoss"], PPOLoss)
    )
    log_ratio = rows["log_probs"] - rows["old_log_probs"]
    assert penalized - plain == pytest.approx(0.2 * np.mean(np.exp(log_ratio) - 1 - log_ratio), rel=1e-4)


# -- plans --------------------------------------------------------------------------------------------------------

BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)


def plan_page(name, scope, with_ray=False):
    """Runs a page's code in a scope, in order; what needs a cluster only where asked. Returns what was run."""
    run = []
    for kind, block in BLOCK.findall((PLAN_PAGES / name).read_text(encoding="utf-8")):
        if kind == "python" and (with_ray or not re.search(r"RayEngine|\(engine\)", block)):
            exec(compile(block, name, "exec"), scope)
            run.append(block)
    return run


def commands_of(name):
    """The commands on a page, each as words."""
    text = (PLAN_PAGES / name).read_text(encoding="utf-8")
    lines = [line for kind, block in BLOCK.findall(text) if kind == "sh" for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


@pytest.fixture(scope="module")
def first_plan():
    # a module of no such name: what is defined there travels to other processes by value
    scope = {"__name__": "pages"}
    assert len(plan_page("first-plan.md", scope)) == 7
    return scope


def test_every_page_on_plans_is_listed():
    listed = re.findall(r"\]\((.*?\.md)\)", (PLAN_PAGES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in PLAN_PAGES.glob("*.md") if path.name != "README.md")
    for path in re.findall(r"python (benchmarks/\w+\.py)", (PLAN_PAGES / "README.md").read_text(encoding="utf-8")):
        assert (PAGES.parent.parent / path).exists()


@pytest.mark.parametrize(
    "name", ["cluster.md", "failures.md", "staleness.md", "evaluation.md", "operators.md", "deviations.md"]
)
def test_the_pages_on_plans(first_plan, name):
    assert plan_page(name, dict(first_plan))


def test_the_error_on_the_first_page_is_the_one_that_is_raised(first_plan):
    text = (PLAN_PAGES / "first-plan.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    stream = first_plan["ParallelRollouts"](first_plan["players"]).gather_sync().batch(32)
    with pytest.raises(PlanError) as caught:
        stream.for_each(first_plan["TrainOneStep"](first_plan["learner"]))
    assert str(caught.value) == shown.rstrip()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster.md", "failures.md", "staleness.md", "evaluation.md"])
def test_the_pages_on_plans_on_ray(first_plan, ray_engine, name):
    assert any("RayEngine" in block for block in plan_page(name, dict(first_plan), with_ray=True))


def run_command(words, monkeypatch):
    from rlweave.cli import main

    assert words[0] == "rlweave"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, words


@pytest.mark.parametrize("name", sorted(path.name for path in PLAN_PAGES.glob("*.md")))
def test_the_commands_that_look_at_plans(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in commands_of(name):
        if words[1] == "plan":
            run_command(words, monkeypatch)
            assert "report_metrics" in capsys.readouterr().out or (tmp_path / words[-1]).exists()


def table_rows(text):
    """The cells of the lines that begin with a number of workers."""
    return [re.split("  +", line.strip()) for line in text.splitlines() if re.match(r" *\d[\d,]*  ", line)]


@pytest.mark.parametrize(
    ("number", "algorithm", "workers"),
    [
        (0, "ppo", "2,16"),
        (1, "impala", "2,16"),
        pytest.param(2, "ape-x", "2,16", marks=pytest.mark.thorough),
        pytest.param(3, "dqn", "2,16", marks=pytest.mark.thorough),
        pytest.param(0, "ppo", "2,16,256,4096", marks=[pytest.mark.thorough, pytest.mark.slow]),
        pytest.param(1, "impala", "2,16,256,4096", marks=[pytest.mark.thorough, pytest.mark.slow]),
    ],
)
def test_the_tables_of_how_trainings_scale(number, algorithm, workers, monkeypatch, capsys):
    shown = re.findall(r"```text\n(.*?)```", (PLAN_PAGES / "scale.md").read_text(encoding="utf-8"), re.DOTALL)[number]
    costs = str(PLAN_PAGES / "costs" / f"{algorithm}.yaml")
    words = ["rlweave", "plan", algorithm, "--simulate", workers, "--cores", "16", "--costs", costs]
    run_command(words, monkeypatch)
    printed = table_rows(capsys.readouterr().out)
    assert printed == table_rows(shown)[: len(printed)]
    assert len(printed) == len(workers.split(","))


@pytest.mark.long(minutes=0.5)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster.md", "failures.md", "staleness.md"])
def test_the_commands_that_train(name, ray_engine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trained = [words for words in commands_of(name) if words[1] in ("train", "resume")]
    assert trained
    for words in trained:
        run_command(words, monkeypatch)
        capsys.readouterr()

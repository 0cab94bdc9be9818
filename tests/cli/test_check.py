"""`rlweave check`."""

import importlib.metadata
import json

import pytest

from rlweave.graph import Component, graph_fn
from rlweave.testing.checks.everything import ENTRY_POINT_GROUP

COMPONENT = "tests.testing.checks.test_checking:Centred"


def raises():
    raise RuntimeError("no simulator")


@pytest.fixture
def spaces(tmp_path):
    path = tmp_path / "spaces.yaml"
    path.write_text("inputs:\n  inputs: {type: FloatBox, shape: [3], batch: B}\n")
    return path


def test_a_finding_ends_with_1_and_says_place_cause_and_fix(rlweave, spaces):
    result = rlweave("check", COMPONENT, "--spaces", spaces)
    assert result.code == 1
    assert "rows of the batch reach each other" in result.out
    assert "test_checking.py:" in result.out
    assert "mixes_batch=True" in result.out


def test_a_registered_component_needs_no_spaces(rlweave):
    result = rlweave("check", "rlweave.components:PPOLoss")
    assert result.code == 0, result.out
    assert result.out.startswith("ppo-loss: nothing found")


def test_a_descriptor_is_found_by_its_name(rlweave):
    result = rlweave("check", "ppo-loss")
    assert result.code == 0, result.out
    assert result.out.startswith("ppo-loss: nothing found")


def test_an_entry_point_that_names_no_descriptors_is_named(rlweave, monkeypatch):
    point = importlib.metadata.EntryPoint("theirs", "tests.cli.test_check:Prints", ENTRY_POINT_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] * (group == ENTRY_POINT_GROUP))
    result = rlweave("check", "no-such-descriptor")
    assert result.code == 2
    for part in ("entry point theirs", "tests.cli.test_check:Prints", "a Registry, or a list"):
        assert part in result.err


def test_a_component_is_compared_on_several_backends(rlweave):
    pytest.importorskip("torch")
    result = rlweave("check", "rlweave.components:CriticLoss", "--backend", "numpy", "--backend", "torch", "--json")
    assert result.code == 0, result.out
    assert "backends agree" in {done["check"] for done in json.loads(result.out)["done"]}


def test_a_component_without_spaces_is_told_where_they_come_from(rlweave):
    result = rlweave("check", COMPONENT)
    assert result.code == 2
    assert "--spaces FILE" in result.err


def test_the_report_as_json(rlweave, spaces):
    result = rlweave("check", COMPONENT, "--spaces", spaces, "--json")
    data = json.loads(result.out)
    assert data["ok"] is False
    assert {finding["cause"] for finding in data["findings"]} == {"ROWS_MEET"}


class Prints(Component):
    @graph_fn
    def call(self, inputs):
        print("traced")
        return inputs * 2.0


def test_json_stays_alone_where_the_component_prints(rlweave, spaces):
    result = rlweave("check", "tests.cli.test_check:Prints", "--spaces", spaces, "--json")
    assert json.loads(result.out)["ok"] is True
    assert "traced" in result.err


def test_an_agent_is_checked_by_the_name_of_its_algorithm(rlweave):
    pytest.importorskip("torch")
    result = rlweave("check", "a2c", "--env", "CartPole-v1", "--backend", "torch", "--set", "agent.rollout_steps=4")
    assert result.code == 0, result.out + result.err
    assert "a2c in CartPole-v1 on torch: nothing found" in result.out
    assert "loss falls" in result.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "one subject is needed"),
        (("ppo", "--all"), "one subject is needed"),
        (("ppos",), "'ppo'"),
        (("dqn", "--env", "Pendulum-v1"), "Q-values need actions that can be counted"),
        (("dqn", "--env", "tests.cli.broken_envs:Break"), "did you mean 'Breaks'?"),
        (("dqn", "--env", "tests.cli.test_check:raises"), "rlweave check-env"),
        (("tests.testing.checks.test_describing:DescribedBadly",), "ValueError: no file"),
        (("tests.testing.checks.test_describing:Twice",), "--spaces FILE"),
        (("no_such_module:Thing",), "no_such_module"),
        (("rlweave.components:PPOLos",), "PPOLoss"),
        (("rlweave.spaces:FloatBox",), "only components"),
        (("rlweave.components:PPOLoss", "--env", "CartPole-v1"), "says nothing of a component"),
        (("ppo", "--spaces", "x.yaml"), "says nothing of an agent"),
        (("es",), "single steps"),
        (("rlweave.components:PPOLoss", "--backend", "torchh"), "did you mean 'torch'?"),
    ],
)
def test_wrong_usage_ends_with_2(rlweave, arguments, says):
    result = rlweave("check", *arguments)
    assert result.code == 2
    assert says in result.err


def test_a_file_of_spaces_with_an_unknown_key_is_refused(rlweave, tmp_path):
    path = tmp_path / "spaces.yaml"
    path.write_text("input: {}\n")
    result = rlweave("check", COMPONENT, "--spaces", path)
    assert result.code == 2
    assert "did you mean 'inputs'?" in result.err

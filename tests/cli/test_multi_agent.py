"""The commands and settings of `docs/multi-agent.md`, from training to evaluation and back."""

import inspect
import json
import re
import shlex
from pathlib import Path

import pytest

from rlweave.extras.multi_agent import multi_agent_plan

PAGE = (Path(__file__).parents[2] / "docs/multi-agent.md").read_text(encoding="utf-8")


def block(language):
    """The first block of code of a language on the page."""
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL).group(1)


@pytest.mark.slow
def test_the_command_of_the_page_trains_and_goes_on(rlweave, tmp_path):
    command = shlex.split(block("sh"))
    assert command[0] == "rlweave"
    small = ["steps_per_item=8", "evaluation_episodes=1", "final_episodes=2", "num_envs=2"]
    policies = {"ppo_0": "rollout_steps=32", "ppo_1": "rollout_steps=32", "dqn_0": "learning_starts=100"}
    small += [f"policies.{name}.agent.{value}" for name, value in policies.items()]
    options = [word for value in small for word in ("--set", value)]
    words = [*command[1:-1], "400", "--run-dir", "run", *options]
    result = rlweave(*words)
    assert result.code == 0, result.err
    evaluation = json.loads((tmp_path / "run/evaluation.json").read_text())
    assert sorted(evaluation["policies"]) == ["dqn_0", "dqn_1", "ppo_0", "ppo_1"]
    assert all(len(own["returns"]) == 2 for own in evaluation["policies"].values())
    assert "by policy: ppo_0" in result.out
    header = (tmp_path / "run/metrics.csv").read_text().splitlines()[0].split(",")
    assert {"joint_steps", "episode_return/dqn_1", "evaluation_return/ppo_0"} <= set(header)
    shown = rlweave("evaluate", "run", "--episodes", "2", "--json")
    assert json.loads(shown.out)["policies"] == evaluation["policies"]
    resumed = rlweave("resume", "run", "--steps", "500")
    assert resumed.code == 0, resumed.err
    assert "going on from" in resumed.out


def test_the_settings_of_the_page_are_those_of_a_training(rlweave, tmp_path):
    pytest.importorskip("mpe2")
    (tmp_path / "spread.yaml").write_text(block("yaml"))
    small = ["num_envs=2", "evaluate_every=0", "final_episodes=0", "tensorboard=false", "backend=torch"]
    small.append("policies.rest.agent.network=[{type: dense, units: 8}]")
    options = [word for value in small for word in ("--set", value)]
    result = rlweave("train", "multi-agent", "--config", "spread.yaml", "--steps", "200", "--run-dir", "run", *options)
    assert result.code == 0, result.err
    config = (tmp_path / "run/config.yaml").read_text()
    assert "leader:" in config
    code = rlweave("graph", "multi-agent", "--config", "spread.yaml", "--code", "leader/update", *options)
    assert "def " in code.out


def test_a_wrong_name_is_a_wrong_setting(rlweave):
    result = rlweave("train", "multi-agent", "--env", "rlweave/MultiCartPol-v0")
    assert result.code == 2
    assert "did you mean 'rlweave/MultiCartPole-v0'" in result.err
    assert rlweave("train", "ppo", "--env", "rlweave/MultiCartPole-v0").code == 2


def test_the_plan_of_the_page_is_the_plan():
    lines = inspect.getsource(multi_agent_plan).splitlines()
    body = "\n".join(lines[lines.index("    joint = " + block("python").split("    joint = ")[1].split("\n")[0]) :])
    assert body in block("python")
    assert len(body.splitlines()) == 6

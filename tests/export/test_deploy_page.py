"""The scripts of docs/deploy.md run as they stand, where rlweave cannot be imported, and act as the policy does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rlweave.agents.ppo import PPO
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.export import TARGETS, export_policy
from rlweave.spaces.gymnasium_spaces import from_gymnasium
from rlweave.spaces.text_hashing import hash_text

PAGE = (Path(__file__).parents[2] / "docs/deploy.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RUNS_WITHOUT_RLWEAVE = """
import runpy, sys

class Blocker:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "rlweave":
            raise ImportError("rlweave is not here")

sys.meta_path.insert(0, Blocker())
try:
    import rlweave
except ImportError:
    runpy.run_path("script.py")
"""


def policy_of(env, layer):
    """A policy that pushes where the pole leans to and falls to; a recurrent one also looks at the steps before."""
    spaces = [from_gymnasium(space) for space in (env.observation_space, env.action_space)]
    config = {"network": [layer], "normalize_observations": True, "minibatches": 1}
    agent = PPO(*spaces, config, backend="numpy", seed=5)
    weights = {path: np.array(value) for path, value in agent.get_weights().items()}
    for path, value in weights.items():
        if path.endswith("policy/head/kernel"):
            value[:] = np.where(np.arange(2) == 1, 1.0, -1.0)
        elif path.endswith("/kernel") and "policy/" in path:
            value[:] = np.array([0.0, 0.1, 1.0, 1.0])[:, None]
    agent.set_weights(weights)
    return TrainedPolicy(agent, agent.model().weights, "numpy")


def episode(policy, env):
    observation, _ = env.reset(seed=0)
    actions, ended = [], False
    while not ended:
        actions.append(int(policy.act(observation)))
        observation, _, terminated, truncated, _ = env.step(actions[-1])
        ended = terminated or truncated
    return actions


def run(script, directory):
    (directory / "script.py").write_text(script, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", RUNS_WITHOUT_RLWEAVE]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("to", "script", "layer"),
    [
        *[(to, number, {"type": "dense", "units": 8, "activation": "tanh"}) for number, to in enumerate(TARGETS)],
        ("onnx", 4, {"type": "gru", "units": 5}),
    ],
    ids=[*TARGETS, "recurrent on onnx"],
)
def test_each_script_plays_as_the_policy_does(to, script, layer, tmp_path):
    script = SCRIPTS[script]
    assert len(script.splitlines()) <= (15 if layer["type"] == "dense" else 22)
    with gymnasium.make("CartPole-v1") as env:
        policy = policy_of(env, layer)
        description = export_policy(policy, to, tmp_path / "policy")
        actions = episode(policy, env)
    assert {0, 1} == set(actions)
    assert description["file"] in script or to == "numpy"
    assert run(script, tmp_path) == f"{len(actions)} {actions}\n"


def test_numbers_of_words_are_those_of_the_page():
    scope = {}
    exec(SCRIPTS[5], scope)
    for text in ("", "Go left, go", "räum die grüne Tür auf! 12 × 3", "a b c d e f g h i"):
        assert scope["numbers_of"](text, 6, 100) == hash_text(text, 6, 100).tolist()

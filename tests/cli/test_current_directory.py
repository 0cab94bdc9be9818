"""Environments of the current directory are found, however the program is begun."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ENVIRONMENTS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("My-v0", CartPoleEnv, max_episode_steps=20)
"""
WORDS = ("ppo", "--env", "my_envs:My-v0", "--backend", "torch", "--set", "agent.acting_backend=numpy")


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["rlweave", "python -m rlweave"])
def test_a_module_of_the_current_directory_is_found(tmp_path, spelling):
    (tmp_path / "my_envs.py").write_text(ENVIRONMENTS)
    script = Path(sysconfig.get_path("scripts")) / "rlweave"
    program = [sys.executable, str(script)] if spelling == "rlweave" else [sys.executable, "-m", "rlweave"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*program, "plan", *WORDS, "--placement", "environments_apart"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parallel_rollouts" in done.stdout

"""Where only some backends are installed: the best of them learns, NumPy acts with what another one learned."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WITHOUT = """
import importlib.util, sys
missing, find = set({missing!r}), importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name.partition(".")[0] in missing else find(name, *more)
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from rlweave.cli import main
main({words!r})
"""


def rlweave_without(missing, directory, *words):
    script = WITHOUT.format(missing=missing, words=list(words))
    return subprocess.run(
        [sys.executable, "-c", script], cwd=directory, capture_output=True, text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
    )  # fmt: skip


def test_torch_alone_trains_and_numpy_alone_evaluates_and_loads(tmp_path):
    words = ("train", "ppo", "--env", "CartPole-v1", "--no-presets", "--steps", "2048", "--run-dir", "run")
    trained = rlweave_without(["jax", "jaxlib", "tensorflow"], tmp_path, *words, "--set", "final_episodes=2")
    assert trained.returncode == 0, trained.stderr
    assert "learning on torch" in trained.stdout
    frameworks = ["jax", "jaxlib", "tensorflow", "torch"]
    evaluated = rlweave_without(frameworks, tmp_path, "evaluate", "run", "--episodes", "2")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "mean return" in evaluated.stdout
    refused = rlweave_without(["jax", "jaxlib"], tmp_path, *words[:-1], "other", "--backend", "jax")
    assert refused.returncode == 2
    assert "--backend torch, which is installed" in refused.stderr
    nothing = rlweave_without(frameworks, tmp_path, *words[:-1], "other")
    assert nothing.returncode == 2
    assert "install one that learns" in nothing.stderr
    assert not (tmp_path / "other").exists()

"""`load`: a trained policy from a run, a checkpoint or a model."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from rlweave.agents.from_model import trained_policies
from rlweave.agents.model_files import Model, is_model, read_model
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError
from rlweave.runs.checkpoint import find_checkpoint, is_there, read_checkpoint_model
from rlweave.runs.run_directory import RunDirectory


def load(path: str | os.PathLike[str], backend: str | None = None, *, seed: int = 0) -> Any:
    """Loads a trained policy, to act with it.

    Neither the environment nor the framework that it was trained with is needed, and no replay memory is read.

    Args:
        path: A run directory (its best checkpoint is taken, or else its newest good one), a checkpoint, or a model
            that `export_model` wrote.
        backend: What computes: "numpy" (when None), "onnx", "torch", "jax" or "tensorflow", whichever it was trained
            on.
        seed: Seeds what `act(..., deterministic=False)` draws.

    Returns:
        A `rlweave.agents.trained_policy.TrainedPolicy`; of a training of several policies, a dict of them by name.

    Raises:
        BackendError: The backend is not installed.
        CheckpointError: There is no model, or it is damaged.
    """
    if is_model(path):
        found, model = Path(path), read_model(path)
    else:
        found = find_playing(path)
        model = read_checkpoint_model(found)
    # a model has no settings; and a module may be missing that only training needs
    with contextlib.suppress(ConfigError):
        RunDirectory.open(path).read_config()  # which imports the modules of the setting `imports`
    return policy_of(model, found, backend, seed)


def policy_of(model: Model, where: str | Path, backend: str | None = None, seed: int = 0) -> Any:
    """As `load`, for a model in memory."""
    return trained_policies(model, where, "numpy" if backend is None else backend, seed, get_algorithm)


def find_playing(path: str | os.PathLike[str]) -> Path:
    """The checkpoint to play with: a run's best, or else its newest good one; or the given one.

    Raises:
        CheckpointError: There is none.
    """
    path = Path(path)
    best = (path if path.name == "checkpoints" else path / "checkpoints") / "best"
    return best if is_there(best) else find_checkpoint(path)

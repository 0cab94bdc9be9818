"""Writing the state of a training down, and saying what that takes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError

from rlweave.algorithms.config import TrainConfig
from rlweave.errors import CheckpointError
from rlweave.runs.block_files import BLOCKS
from rlweave.runs.checkpoint import MODEL, save_checkpoint
from rlweave.runs.states import split_arrays

#: Replay memories that would take more than this in checkpoints are told of before.
_WORTH_A_WARNING = 1 << 30


class Saved(Protocol):
    """What a training has to be for that."""

    @property
    def env_steps(self) -> int:
        """Environment steps so far."""

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that a checkpoint holds."""

    def export_model(self, path: Path) -> Path:
        """Writes the model."""


def write_training(training: Saved, directory: Path, keep: int | None = None) -> Path:
    """Writes a checkpoint of a training; it goes on as if nothing had been written.

    Args:
        training: The training.
        directory: Where its checkpoints stand.
        keep: How many of the newest stay; None keeps all.

    Returns:
        The path of the checkpoint.

    Raises:
        CheckpointError: The disk refuses; the error names the last good checkpoint.
    """
    return write_state(directory, training.env_steps, training.state_dict(copy=False), training.export_model, keep)


def write_state(
    directory: Path, step: int, state: dict[str, Any], write_model: Callable[[Path], Any], keep: int | None = None
) -> Path:
    """Writes a checkpoint of the state of a training; see `write_training`.

    Args:
        directory: Where its checkpoints stand.
        step: Environment steps.
        state: The state.
        write_model: Writes the model.
        keep: How many of the newest stay; None keeps all.
    """
    large: dict[str, np.ndarray] = {}
    arrays = {f"agent/{path}": value for path, value in state.pop("variables").items()}
    meta = split_arrays(state, "", arrays, large)
    return save_checkpoint(directory, step, arrays, meta, large=large, write_model=write_model, keep=keep)


def described(path: Path, seconds: float) -> str:
    """What a checkpoint holds, how large that is and how long it took to write, in one line."""
    sizes = {"model": 0, "replay memory": 0, "all other state": 0}
    for file in path.rglob("*"):
        if file.is_file():
            part = file.relative_to(path).parts[0]
            kind = {MODEL: "model", BLOCKS: "replay memory"}.get(part, "all other state")
            sizes[kind] += file.stat().st_size
    parts = ", ".join(f"{kind} {size_text(size)}" for kind, size in sizes.items() if size)
    return f"checkpoint {path.name}: {parts}; written in {seconds:.1f} s"


def size_warning(memory_bytes: int, directory: Path) -> str:
    """What a replay memory of this size will take on the disk; nothing where that is little."""
    free = shutil.disk_usage(directory).free
    if memory_bytes < min(_WORTH_A_WARNING, free):
        return ""
    return (
        f"checkpoints hold the replay memory, up to {size_text(memory_bytes)} when it is full (less where it can be "
        f"compressed), once for all of them but for what changed; {size_text(free)} are free in {directory}; "
        "--set save_memory=false leaves it out, and a run that is resumed fills it anew"
    )


def save_and_tell(save: Callable[[], Path], tell: Callable[[str], None]) -> Path:
    """Saves, and tells what that took."""
    began = time.monotonic()
    path = save()
    tell(described(path, time.monotonic() - began))
    return path


def is_refused_by_disk(error: CheckpointError) -> bool:
    """Whether a checkpoint could not be written because of the disk, and not of what it was to hold."""
    cause = error.__cause__
    return isinstance(cause, OSError | SafetensorError) or (
        isinstance(cause, CheckpointError) and is_refused_by_disk(cause)
    )


def size_text(size: float) -> str:
    """A number of bytes for a reader.

    >>> size_text(512), size_text(1_500_000)
    ('512 B', '1.4 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def check_same_training(algorithm: str, config: TrainConfig, state: Mapping[str, Any], where: str) -> None:
    """Refuses the state of another kind of training.

    Args:
        algorithm: Name of the algorithm that is to go on.
        config: Its settings.
        state: Has `algorithm`, `backend` and `env`; the first checkpoints of the format lack the latter two.
        where: Where the state comes from.

    Raises:
        CheckpointError: It is of another algorithm, backend or environment.
    """
    mine = {"algorithm": algorithm, "backend": config.backend, "environment": config.env}
    its = {"algorithm": state.get("algorithm"), "backend": state.get("backend"), "environment": state.get("env")}
    for kind, value in its.items():
        if value != mine[kind] and (value is not None or kind == "algorithm"):
            raise CheckpointError(
                f"the checkpoint is of another {kind}",
                where=where,
                received=f"{value!r}, where the configuration has {mine[kind]!r}",
                fix=f"go on with {value!r}, or begin a new run",
            )

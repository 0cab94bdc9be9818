"""Checkpoints of a training: written between two steps, or from the last consistent state if one is cut short."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError

from rlweave.algorithms.config import TrainConfig
from rlweave.errors import CheckpointError
from rlweave.runs.block_files import BLOCKS
from rlweave.runs.checkpoint import MODEL, save_checkpoint
from rlweave.runs.states import split_arrays

#: Size of a replay memory in checkpoints above which a warning comes first, in bytes.
_WORTH_A_WARNING = 1 << 30


class Saved(Protocol):
    """The protocol of a training that can be saved."""

    @property
    def env_steps(self) -> int:
        """Environment steps so far."""

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that a checkpoint holds."""

    def export_model(self, path: Path) -> Path:
        """Writes the model."""


def write_training(training: Saved, directory: Path, keep: int | None = None) -> Path:
    """Writes a checkpoint of a training, without an effect on it.

    Args:
        training: The training.
        directory: The directory of its checkpoints.
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
        directory: The directory of its checkpoints.
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
    """Contents, size and writing time of a checkpoint, in one line."""
    sizes = {"model": 0, "replay memory": 0, "all other state": 0}
    for file in path.rglob("*"):
        if file.is_file():
            part = file.relative_to(path).parts[0]
            kind = {MODEL: "model", BLOCKS: "replay memory"}.get(part, "all other state")
            sizes[kind] += file.stat().st_size
    parts = ", ".join(f"{kind} {size_text(size)}" for kind, size in sizes.items() if size)
    return f"checkpoint {path.name}: {parts}; written in {seconds:.1f} s"


def size_warning(memory_bytes: int, directory: Path) -> str:
    """A warning of the disk space that a replay memory of this size takes; empty if it is little."""
    free = shutil.disk_usage(directory).free
    if memory_bytes < min(_WORTH_A_WARNING, free):
        return ""
    return (
        f"checkpoints hold the replay memory, up to {size_text(memory_bytes)} when it is full (less where it can be "
        f"compressed), once for all of them but for what changed; {size_text(free)} are free in {directory}; "
        "--set save_memory=false leaves it out, and a run that is resumed fills it anew"
    )


def save_and_tell(save: Callable[[], Path], tell: Callable[[str], None]) -> Path:
    """Saves, and tells size and time."""
    began = time.monotonic()
    path = save()
    tell(described(path, time.monotonic() - began))
    return path


def is_refused_by_disk(error: CheckpointError) -> bool:
    """Whether a checkpoint could not be written because of the disk, and not of its contents."""
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
        algorithm: Name of the algorithm that resumes.
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


#: Share of the time in which a training has to stop above which a step counts as long.
_LONG_SHARE = 0.25
#: Decay of the longest step so far with every further step: compiling is long once.
_FORGETTING = 0.8

Write = Callable[[], Path]


class Rescue:
    """Keeps the last consistent state of a training, for when its process has to end in the middle of a step.

    Between two steps of a plan the state is consistent, and can be saved. A step may take minutes, though (an update of
    many epochs, the first call of a compiled program), and nothing can be saved in the middle of it. So where steps
    have been long, the state before each of them is kept; where they are short, nothing is.

    Args:
        keep: Copies the present state, and returns a function that writes it; None if it is too large to be kept.
        save: Writes the present state.
        grace: Seconds in which the training has to stop.
    """

    def __init__(self, keep: Callable[[], Write | None], save: Write, grace: float) -> None:
        self._keep, self._save, self._grace = keep, save, grace
        self._kept: Write | None = None
        self._whole = threading.Event()
        self._lock = threading.RLock()
        self._saving = False
        self._began_at: float | None = None
        self._longest = 0.0

    def between_steps(self) -> None:
        """Notes that the state is consistent, and that the next step begins."""
        now = time.monotonic()
        if self._began_at is not None:
            self._longest = max(now - self._began_at, _FORGETTING * self._longest)
        self._kept = self._keep() if self._longest > _LONG_SHARE * self._grace else None
        self._began_at = time.monotonic()

    def no_step(self) -> None:
        """Notes that the last step is over, and none begins."""
        self._began_at = None

    @contextmanager
    def state_is_whole(self) -> Iterator[None]:
        """A context for long work that changes no state."""
        self._whole.set()
        try:
            yield
        finally:
            self._whole.clear()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A context in which the training is being saved."""
        with self._lock:
            self._saving, self._kept = True, None  # what is saved is newer
            try:
                yield
            finally:
                self._saving = False

    def is_saving(self) -> bool:
        """Whether the training is being saved."""
        return self._saving

    def save(self) -> Path | None:
        """Writes the last consistent state, from another thread.

        Returns:
            The checkpoint; None if there is no newer state than the one saved last.
        """
        with self._lock:
            if self._whole.is_set():
                return self._save()
            return None if self._kept is None else self._kept()

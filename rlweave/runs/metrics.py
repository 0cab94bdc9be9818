"""The metrics of a run: a CSV file that grows a row per report, and TensorBoard events beside it."""

from __future__ import annotations

import contextlib
import csv
import importlib
import importlib.util
import io
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.errors import CheckpointError, ConfigError, install_command
from rlweave.runs.whole_files import append_whole, write_whole

#: The counter that every row has: environment steps since the run began, over all environments.
STEP_COLUMN = "env_steps_sampled"
#: The mean return of the latest training episodes; what a learning curve shows.
RETURN_COLUMN = "episode_return"
#: The mean return of the latest greedy evaluation.
EVALUATION_COLUMN = "evaluation_return"

#: A row of metrics: has `env_steps_sampled`, and `episode_return` once an episode has ended. Names never change.
Report = Mapping[str, float | int]


class MetricsLog:
    """Appends rows to `metrics.csv` and to TensorBoard.

    A column keeps its name and its place for ever: one that appears later is added on the right, and earlier rows
    are empty there. Each row is on the disk when `write` returns.

    Args:
        path: The CSV file; continued when it exists.
        tensorboard: Directory of the events. None: no events.

    Raises:
        ConfigError: When TensorBoard events are asked for and tensorboardX is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], tensorboard: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path)
        self.tensorboard = Path(tensorboard) if tensorboard is not None else None
        if self.tensorboard is not None and not tensorboard_is_installed():
            raise ConfigError(
                "TensorBoard events need tensorboardX, which is not installed",
                fix=f"{install_command('tensorboard')}, or leave them out: --set tensorboard=false",
            )
        self._columns: list[str] = []
        self._events: Any = None
        if self.path.exists():
            self._drop_half_written_row()
            rows = _read_rows(self.path)
            self._columns = rows[0] if rows else []

    def write(self, row: Report) -> None:
        """Appends a row, all of it or nothing.

        Raises:
            CheckpointError: The disk refuses.

        Args:
            row: Column to number; has at least `env_steps_sampled`. NaN means that there is no value yet.
        """
        if STEP_COLUMN not in row:
            raise ConfigError(f"a row of metrics needs {STEP_COLUMN!r}", received=repr(sorted(row)))
        try:
            new = [name for name in row if name not in self._columns]
            if new:
                self._add_columns(new)
            append_whole(self.path, _format_row([_format(row.get(name)) for name in self._columns]))
            self._write_events(row)
        except OSError as error:
            raise CheckpointError(
                "a line of metrics could not be written",
                where=str(error.filename or self.path),
                received=str(error),
                fix="make room on the disk; all lines before this one are there",
            ) from error

    def rewind(self, env_steps: int) -> None:
        """Drops the rows after a counter, which a resumed run writes again."""
        rows = _read_rows(self.path) if self.path.exists() else []
        if rows:
            index = rows[0].index(STEP_COLUMN)
            self._replace_file([rows[0], *(row for row in rows[1:] if float(row[index]) <= env_steps)])
        if self.tensorboard is not None:
            self._open_events(purge_step=env_steps + 1)

    def close(self) -> None:
        """Writes the remaining events."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _add_columns(self, new: list[str]) -> None:
        # The step is the first column.
        columns = sorted([*self._columns, *new], key=lambda name: name != STEP_COLUMN)
        rows = _read_rows(self.path) if self.path.exists() else []
        self._replace_file([columns, *(row + [""] * len(new) for row in rows[1:])])
        self._columns = columns

    def _replace_file(self, rows: list[list[str]]) -> None:
        write_whole(self.path, "".join(map(_format_row, rows)))

    def _drop_half_written_row(self) -> None:
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            self.path.write_bytes(content[: content.rfind(b"\n") + 1])

    def _open_events(self, purge_step: int | None = None) -> None:
        self.close()
        _import_tensorboard()
        # not its SummaryWriter: that writes in a thread, and if it fails, the training would hang
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        assert self.tensorboard is not None
        self.tensorboard.mkdir(parents=True, exist_ok=True)
        # Without the suffix, two files opened in one second have one name, and the second overwrites the first.
        self._events = EventsWriter(str(self.tensorboard / "events"), f".{time.time_ns()}")
        if purge_step is not None:  # TensorBoard drops events that a cut run wrote after the checkpoint
            start = SessionLog(status=SessionLog.START)
            self._events.write_event(Event(wall_time=time.time(), step=purge_step, session_log=start))
        self._events.flush()

    def _write_events(self, row: Report) -> None:
        if self.tensorboard is None:
            return
        if self._events is None:
            self._open_events()
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        written = max(self.tensorboard.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        size = written.stat().st_size
        now, step = time.time(), int(row[STEP_COLUMN])
        try:
            for name, value in row.items():
                if name != STEP_COLUMN and math.isfinite(value):
                    summary = scalar(name, float(value))
                    self._events.write_event(Event(wall_time=now, step=step, summary=summary))
            self._events.flush()
        except OSError:
            with contextlib.suppress(OSError):
                self.close()
            self._events = None
            with contextlib.suppress(OSError):
                os.truncate(written, size)
            raise


def read_metrics(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads a CSV file of metrics.

    Returns:
        Column name to float64 array of shape (rows,); NaN where a row has no value.

    Raises:
        ConfigError: It is no such file.
    """
    rows = _read_rows(Path(path))
    if not rows:
        return {}
    names, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    try:
        return {name: np.array([float(row[i] or "nan") for row in body]) for i, name in enumerate(names)}
    except ValueError as error:
        raise _damaged(Path(path), error) from error


def tensorboard_is_installed() -> bool:
    """Whether events can be written (without importing anything)."""
    return importlib.util.find_spec("tensorboardX") is not None


def _import_tensorboard() -> None:
    """Imports tensorboardX, and keeps it from importing torch, which takes seconds and is not needed."""
    hide = "torch" not in sys.modules and "tensorboardX" not in sys.modules
    if hide:
        sys.modules["torch"] = None  # type: ignore[assignment]  # an ImportError, with which tensorboardX does without
    try:
        importlib.import_module("tensorboardX")
    finally:
        if hide:
            del sys.modules["torch"]


def _read_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    except (ValueError, csv.Error) as error:  # no text
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        "the file of metrics is damaged",
        where=str(path),
        received=str(error),
        fix="remove the lines that are no numbers",
    )


def _format_row(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _format(value: float | int | None) -> str:
    if value is None or math.isnan(value):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    # Plain numbers, not NumPy's; repr keeps every digit of a float.
    return repr(value.item() if isinstance(value, np.generic) else value)

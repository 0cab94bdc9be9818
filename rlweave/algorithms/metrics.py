"""The metrics of a run: a CSV file that grows a row per report, and TensorBoard events beside it."""

from __future__ import annotations

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

from rlweave.errors import ConfigError, install_command

#: The counter that every row has: environment steps since the run began, over all environments.
STEP_COLUMN = "env_steps_sampled"
#: The mean return of the latest training episodes; what a learning curve shows.
RETURN_COLUMN = "episode_return"
#: The mean return of the latest greedy evaluation.
EVALUATION_COLUMN = "evaluation_return"

Row = Mapping[str, float | int]


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

    def write(self, row: Row) -> None:
        """Appends a row.

        Args:
            row: Column to number; has at least `env_steps_sampled`. NaN means that there is no value yet.
        """
        if STEP_COLUMN not in row:
            raise ConfigError(f"a row of metrics needs {STEP_COLUMN!r}", received=repr(sorted(row)))
        new = [name for name in row if name not in self._columns]
        if new:
            self._add_columns(new)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_format_row([_format(row.get(name)) for name in self._columns]))
        self._write_events(row)

    def rewind(self, env_steps: int) -> None:
        """Drops the rows after a counter: those that a resumed run will write anew."""
        rows = _read_rows(self.path) if self.path.exists() else []
        if rows:
            index = rows[0].index(STEP_COLUMN)
            self._replace_file([rows[0], *(row for row in rows[1:] if float(row[index]) <= env_steps)])
        if self.tensorboard is not None:
            self._open_events(purge_step=env_steps + 1)

    def close(self) -> None:
        """Writes what is left of the events."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _add_columns(self, new: list[str]) -> None:
        # The step stands first, whatever the order of the first row.
        self._columns = sorted([*self._columns, *new], key=lambda name: name != STEP_COLUMN)
        rows = _read_rows(self.path) if self.path.exists() else []
        self._replace_file([self._columns, *(row + [""] * len(new) for row in rows[1:])])

    def _replace_file(self, rows: list[list[str]]) -> None:
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text("".join(map(_format_row, rows)), encoding="utf-8", newline="")
        partial.replace(self.path)

    def _drop_half_written_row(self) -> None:
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            self.path.write_bytes(content[: content.rfind(b"\n") + 1])

    def _open_events(self, purge_step: int | None = None) -> None:
        self.close()
        tensorboard = _import_tensorboard()
        # Purging makes TensorBoard forget what a cut run wrote after the checkpoint from which it is resumed.
        # Without the suffix, two files opened in one second have one name, and the second overwrites the first.
        suffix = f".{time.time_ns()}"
        self._events = tensorboard.SummaryWriter(str(self.tensorboard), purge_step=purge_step, filename_suffix=suffix)

    def _write_events(self, row: Row) -> None:
        if self.tensorboard is None:
            return
        if self._events is None:
            self._open_events()
        for name, value in row.items():
            if name != STEP_COLUMN and math.isfinite(value):
                self._events.add_scalar(name, float(value), int(row[STEP_COLUMN]))
        self._events.flush()


def read_metrics(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads a CSV file of metrics.

    Returns:
        Column name to float64 array of shape (rows,); NaN where a row has no value.
    """
    rows = _read_rows(Path(path))
    if not rows:
        return {}
    names, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    return {name: np.array([float(row[i] or "nan") for row in body]) for i, name in enumerate(names)}


def tensorboard_is_installed() -> bool:
    """Whether events can be written (without importing anything)."""
    return importlib.util.find_spec("tensorboardX") is not None


def _import_tensorboard() -> Any:
    """tensorboardX, kept from importing torch where that is installed: seconds and memory for nothing used here."""
    hide = "torch" not in sys.modules and "tensorboardX" not in sys.modules
    if hide:
        sys.modules["torch"] = None  # type: ignore[assignment]  # an ImportError, with which tensorboardX does without
    try:
        return importlib.import_module("tensorboardX")
    finally:
        if hide:
            del sys.modules["torch"]


def _read_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _format_row(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _format(value: float | int | None) -> str:
    if value is None or math.isnan(value):
        return ""
    # Plain numbers whatever NumPy calls them; repr keeps every digit of a float.
    return repr(value.item() if isinstance(value, np.generic) else value)

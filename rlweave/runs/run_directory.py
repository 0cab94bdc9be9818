"""The directory of one run: its settings and versions, and everything that it wrote."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlweave.errors import ConfigError, nearest
from rlweave.plugins import import_modules
from rlweave.runs.checkpoint import list_checkpoints
from rlweave.runs.metrics import MetricsLog, tensorboard_is_installed
from rlweave.runs.whole_files import append_whole, write_whole
from rlweave.settings.sources import read_settings_file, to_yaml
from rlweave.strict_json import to_json

if sys.platform != "win32":
    import fcntl

#: Packages whose versions can change what a run computes.
_PACKAGES = (
    "rlweave", "numpy", "gymnasium", "jax", "jaxlib", "optax", "flax", "torch", "tensorflow", "onnx",
    "onnxruntime", "ray", "ale-py",
)  # fmt: skip


class RunDirectory:
    """Paths and files of one run.

    Attributes:
        path: The directory itself.
        config_file: The resolved configuration, `config.yaml`; it can be given to `--config`.
        versions_file: Versions of Python and of all packages that matter, `versions.json`.
        command_file: The command lines that trained and resumed it, `command.txt`.
        metrics_file: A row per report, `metrics.csv`.
        tensorboard: TensorBoard events.
        checkpoints: Directory of the checkpoints.
        learning_curve: Picture of the return, `learning-curve.png`.
        graph_picture: Picture of the component graph, `graph.svg`.
        plan_picture: Picture of the dataflow plan, `plan.svg`; after training with rates, queue fill and lag.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.versions_file = self.path / "versions.json"
        self.command_file = self.path / "command.txt"
        self.metrics_file = self.path / "metrics.csv"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.learning_curve = self.path / "learning-curve.png"
        self.graph_picture = self.path / "graph.svg"
        self.plan_picture = self.path / "plan.svg"

    @classmethod
    def create(
        cls,
        algorithm: str,
        settings: Mapping[str, Any],
        *,
        command: Sequence[str] = (),
        path: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] = "runs",
    ) -> RunDirectory:
        """Makes a new run directory; nothing is ever overwritten.

        Args:
            algorithm: Name of the algorithm.
            settings: The resolved configuration as plain data; has at least `env` and `seed`.
            command: The words of the command line.
            path: Where. None: `<root>/<algorithm>-<env>-<time>-seed<seed>`.
            root: Directory of all runs.

        Raises:
            ConfigError: When `path` exists already.
        """
        if path is not None:
            run = cls(path)
            if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
                fix = "choose another --run-dir"
                if run.config_file.exists():
                    fix += f", or go on with this run: rlweave resume {run.path}"
                raise ConfigError("there is something in the run directory already", where=str(run.path), fix=fix)
            run.path.mkdir(parents=True, exist_ok=True)
        else:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            run = cls(_make_new(Path(root), _safe(f"{algorithm}-{settings['env']}-{stamp}-seed{settings['seed']}")))
        run.checkpoints.mkdir()
        run.write_settings(algorithm, settings)
        run.write_versions()
        run.note_command(command)
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Opens the directory of an earlier run.

        Args:
            path: The run directory, or a checkpoint in it.

        Raises:
            ConfigError: When it is none.
        """
        run = cls(path)
        for candidate in (run.path, *run.path.parents[:2]) if run.path.exists() else ():
            if (candidate / "config.yaml").is_file():
                return cls(candidate)
        parent = run.path.parent
        others = [str(p.parent) for p in parent.glob("*/config.yaml")]
        raise ConfigError(
            "no run there",
            where=str(run.path),
            fix=nearest(str(run.path), others) if others else "give a directory that `rlweave train` wrote",
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A lock while a command trains, so that another one on this machine is refused.

        Raises:
            ConfigError: Another command trains this run.
        """
        if sys.platform == "win32":  # no such lock there
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    "another process is training this run",
                    where=str(self.path),
                    fix="wait until it ends, or stop it with Ctrl-C or SIGTERM, which saves where it is",
                ) from None
            except OSError:  # a file system without locks
                pass
            yield
        finally:
            os.close(descriptor)  # releases the lock, as the end of the process does

    def read_config(self) -> tuple[str, dict[str, Any]]:
        """The algorithm's name and the settings of the run; imports the modules that these name."""
        settings = read_settings_file(self.config_file)
        import_modules(settings.get("imports", ()))
        try:
            return settings.pop("algorithm"), settings
        except KeyError:
            raise ConfigError("the run's config names no algorithm", where=str(self.config_file)) from None

    def open_metrics(self, tensorboard: bool | None = None) -> MetricsLog:
        """Opens the metrics for writing.

        Args:
            tensorboard: Whether to write events too; None: when tensorboardX is installed.
        """
        wanted = tensorboard_is_installed() if tensorboard is None else tensorboard
        return MetricsLog(self.metrics_file, self.tensorboard if wanted else None)

    def write_settings(self, algorithm: str, settings: Mapping[str, Any]) -> None:
        """Writes the resolved configuration."""
        write_whole(self.config_file, to_yaml({"algorithm": algorithm, **settings}))

    def write_versions(self) -> None:
        """Writes the versions of the packages in use."""
        versions = {"python": platform.python_version(), "platform": f"{platform.system()}-{platform.machine()}"}
        for package in _PACKAGES:
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        write_whole(self.versions_file, to_json(versions, indent=1) + "\n")

    def note_command(self, command: Sequence[str]) -> None:
        """Appends a command line."""
        if command:
            append_whole(self.command_file, shlex.join(command) + "\n")

    def discard(self) -> None:
        """Removes the directory unless it has metrics or checkpoints."""
        if self.metrics_file.exists() or (self.checkpoints.is_dir() and any(self.checkpoints.iterdir())):
            return
        pictures = (self.graph_picture, self.plan_picture, self.learning_curve)
        for file in (self.config_file, self.versions_file, self.command_file, *pictures):
            file.unlink(missing_ok=True)
        for directory in (self.checkpoints, self.path):
            # Other files there are not ours.
            with contextlib.suppress(OSError):
                directory.rmdir()

    def has_checkpoint(self) -> bool:
        """Whether anything has been saved, damaged or not."""
        return bool(list_checkpoints(self.checkpoints))


def _safe(name: str) -> str:
    """A name for every file system and shell: letters, digits, `-`, `_` and `.`."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9._-]", "-", name)).strip(".-")


def _make_new(root: Path, name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):  # two runs in one second
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ConfigError("no free name for a run directory", where=str(root / name), fix="give one with --run-dir")

"""`rlweave plot`: learning curves of one or many runs in one picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rlweave.cli.console import output, warn
from rlweave.errors import ConfigError, install_command, nearest
from rlweave.runs.metrics import RETURN_COLUMN, STEP_COLUMN, read_metrics
from rlweave.runs.run_directory import RunDirectory
from rlweave.runs.whole_files import replacing
from rlweave.view import curves


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or a directory of them.")],
    out: Annotated[
        Path, typer.Option("--output", "-o", help="The picture; its ending says the format: png, svg or pdf.")
    ] = Path("learning-curves.png"),
    column: Annotated[str, typer.Option(help="Column of metrics.csv that is drawn.")] = RETURN_COLUMN,
    smoothing: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Width of the moving average, as a share of the horizontal axis.")
    ] = 0.06,
) -> None:
    """Draws learning curves; runs that differ only in their seed share a line and a band."""
    directories = [directory for path in runs for directory in _find_runs(path)]
    configs = [directory.read_config() for directory in directories]
    drawn = []
    for directory, group in zip(directories, group_names(configs), strict=True):
        if not _has_metrics(directory):
            warn(f"{directory.path} has no metrics yet")
            continue
        curve = read_curve(directory, group, column)
        if not np.isfinite(curve.values).any():
            warn(f"{directory.path} has no value of {column} yet")
            continue
        drawn.append(curve)
    envs = sorted({str(config["env"]) for _, config in configs})
    thresholds = {_threshold(env) for env in envs} if column == RETURN_COLUMN else set()
    label = _label(column)
    path = curves.draw_curves(
        drawn,
        out,
        title=", ".join(envs),
        label=label,
        smoothing=smoothing,
        threshold=thresholds.pop() if len(thresholds) == 1 else None,
    )
    output().print(f"{len(drawn)} run{'' if len(drawn) == 1 else 's'} drawn: {path}")


def draw_learning_curve(run: RunDirectory) -> None:
    """Draws the learning curve of a run into its directory; prints what is missing if it cannot."""
    if not _has_metrics(run):
        return
    if not curves.is_installed():
        warn(f"no learning curve is drawn without matplotlib: {install_command('plot')}")
        return
    name, config = run.read_config()
    curve = read_curve(run, f"{name} {config['backend']} seed {config['seed']}")
    if np.isfinite(curve.values).any():
        threshold = _threshold(config["env"])
        with replacing(run.learning_curve) as picture:
            curves.draw_curves([curve], picture, title=f"{name} on {config['env']}", threshold=threshold)


def read_curve(run: RunDirectory, group: str, column: str = RETURN_COLUMN) -> curves.Curve:
    """Reads a column of a run's metrics.

    Raises:
        ConfigError: When there are no metrics, or no such column.
    """
    if not _has_metrics(run):
        raise ConfigError("the run has no metrics yet", where=str(run.path))
    metrics = read_metrics(run.metrics_file)
    if column not in metrics:
        if column == RETURN_COLUMN:  # no episode has ended yet
            return curves.Curve(group, metrics[STEP_COLUMN], np.full_like(metrics[STEP_COLUMN], np.nan))
        raise ConfigError("no such column in the metrics", where=str(run.metrics_file), received=repr(column),
                          fix=nearest(column, metrics))  # fmt: skip
    return curves.Curve(group, metrics[STEP_COLUMN], metrics[column])


def _has_metrics(run: RunDirectory) -> bool:
    """Whether there are metrics, or at least their names; a killed process may leave an empty file."""
    return run.metrics_file.exists() and run.metrics_file.stat().st_size > 0


def _find_runs(path: Path) -> Sequence[RunDirectory]:
    if not (path / "config.yaml").exists():
        below = sorted(file.parent for file in path.glob("*/config.yaml"))
        if below:
            return [RunDirectory(directory) for directory in below]
    return [RunDirectory.open(path)]


def group_names(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A name for the group of each run: algorithm, environment and backend, and every other setting that differs.

    Runs of one algorithm are of one group if all their settings but the seed are equal.

    Args:
        runs: Algorithm and nested settings of each run.

    >>> group_names([("ppo", {"env": "E", "backend": "jax", "seed": seed, "agent": {"lr": lr}})
    ...              for seed, lr in [(0, 0.1), (1, 0.1), (0, 0.2)]])
    ['ppo E jax agent.lr=0.1', 'ppo E jax agent.lr=0.1', 'ppo E jax agent.lr=0.2']
    """
    flat = [(name, dict(_flat(config))) for name, config in runs]
    names = []
    for name, settings in flat:
        kin = [other for other_name, other in flat if other_name == name]
        keys = dict.fromkeys(key for other in kin for key in other if key not in ("seed", "env", "backend"))
        differing = [key for key in keys if len({other.get(key, "unset") for other in kin}) > 1]
        own = [f"{key}={settings.get(key, 'unset')}" for key in differing]
        names.append(" ".join([name, *(str(settings.get(key)) for key in ("env", "backend")), *own]))
    return names


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and values as text; a list, an empty mapping and a spec (a mapping with a `type`) are one value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and "type" not in value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else json.dumps(value)  # noqa: TID251 (is shown)


def _threshold(env: str) -> float | None:
    import gymnasium

    known = gymnasium.registry.get(env)
    return known.reward_threshold if known is not None else None


def _label(column: str) -> str:
    return "return (mean of the latest training episodes)" if column == RETURN_COLUMN else column

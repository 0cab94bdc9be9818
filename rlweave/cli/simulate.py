"""`rlweave plan --simulate`: how fast a plan will be with so many workers, and what limits it, as a table or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.scaling import measured, predicted
from rlweave.cli.console import results_alone
from rlweave.errors import ConfigError
from rlweave.flow.costs import Costs
from rlweave.flow.plan_graph import table
from rlweave.flow.simulation import Prediction
from rlweave.runs.whole_files import write_whole
from rlweave.settings.sources import read_settings_file
from rlweave.strict_json import to_json


def show_simulation(
    algorithm: Algorithm,
    config: TrainConfig,
    workers: str,
    costs_file: Path | None,
    write_costs: Path | None,
    cores: int | None,
    as_json: bool,
) -> None:
    """Simulates a training with each number of workers, and prints what came of it.

    Args:
        algorithm: The algorithm.
        config: Settings of the training.
        workers: Numbers of workers, as in ``"2,16,256"``.
        costs_file: Where the costs are; None: they are measured.
        write_costs: Where to write the costs that were used; None: nowhere.
        cores: Of each machine; None: as many as this one has.
        as_json: Whether to print one JSON object.

    Raises:
        ConfigError: These are no numbers of workers, a file is wrong, or the training cannot be simulated.
        PlanError: Costs are missing.
    """
    numbers = _numbers(workers)
    with results_alone(as_json):
        given = None if costs_file is None else Costs.from_data(read_settings_file(costs_file))
        costs = measured(algorithm, config) if given is None else given
        found = list(predicted(algorithm, config, costs, numbers, cores))
    if write_costs is not None:
        _write(costs, write_costs)
    if as_json:
        rows = [dataclasses.asdict(prediction) for prediction in found]
        typer.echo(to_json({"algorithm": algorithm.name, "env": config.env, "costs": costs.to_data(), "rows": rows}))
        return
    each = config.num_envs // config.placement.workers
    typer.echo(f"{algorithm.name} on {config.env}: each worker has {each} environments, whatever their number\n")
    typer.echo(_table(found))
    where = "measured here" if given is None else f"of {costs_file}"
    typer.echo(f"\nCosts, {where} (seconds, rows, bytes; change them and give them as --costs FILE):\n")
    typer.echo(_as_yaml(costs), nl=False)


def _numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) for word in words):
        raise ConfigError(
            "these are no numbers of workers", where="--simulate", received=repr(text), fix="--simulate 2,16,256,4096"
        )
    return [int(word) for word in words]


def _table(found: Sequence[Prediction]) -> str:
    rows = [("workers", "machines", "steps/s", "learner", "driver", "workers busy", "lag", "what limits it")]
    rows += [
        (
            f"{one.workers:,}", f"{one.machines:,}", f"{one.steps_per_second:,.0f}", f"{one.learner_busy:.0%}",
            f"{one.driver_busy:.0%}", f"{one.workers_busy:.0%}", "-" if one.lag is None else f"{one.lag:,.1f}",
            one.bottleneck,
        )
        for one in found
    ]  # fmt: skip
    return table(rows)


def _as_yaml(costs: Costs) -> str:
    return str(yaml.safe_dump(_shortened(costs.to_data()), sort_keys=False))


def _shortened(value: Any) -> Any:
    """Times to four digits, and without what is 0."""
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items() if inner != 0}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _write(costs: Costs, path: Path) -> None:
    try:
        write_whole(path, _as_yaml(costs))
    except OSError as error:
        raise ConfigError("cannot write the costs", where=str(path), received=str(error)) from error

"""`rlweave export`: a trained policy as an artefact that runs without rlweave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rlweave.algorithms.loading import load
from rlweave.cli.console import output, show_files
from rlweave.errors import ConfigError
from rlweave.export import TARGETS, export_policy
from rlweave.export.exporting import DESCRIPTION
from rlweave.runs.run_directory import RunDirectory


def export(
    run: Annotated[Path, typer.Argument(help="Run directory (its best checkpoint), a checkpoint, or a model.")],
    to: Annotated[str, typer.Option(help=f"What it becomes: {', '.join(TARGETS)}.")],
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=r"Directory of the artefact \[default: export/TO in the run directory]."),
    ] = None,
) -> None:
    """Writes a trained policy as one artefact that runs without rlweave, and verifies it: observations in, actions out.

    Of several policies each gets a directory of its own.
    """
    policies = load(run)
    directory = _default(run) / to if out is None else out
    if not isinstance(policies, Mapping):
        _show(export_policy(policies, to, directory), directory)
        return
    for name, policy in policies.items():
        _show(export_policy(policy, to, directory / name), directory / name)


def _default(run: Path) -> Path:
    try:
        return RunDirectory.open(run).path / "export"
    except ConfigError:
        raise ConfigError(
            "a model by itself has no run directory to export into", where=str(run), fix="say where: --output DIRECTORY"
        ) from None


def _show(description: Mapping[str, Any], directory: Path) -> None:
    checked = description["verification"]
    output().print(
        f"{directory}: {checked['observations']:,} observations compared with the policy, greatest difference "
        f"{checked['greatest_difference']:.1e}, actions equal"
        + (f" ({checked['ties']} between equally good ones)" if checked["ties"] else "")
    )
    show_files({f"runs on {description['runs_on']}": directory / description["file"],
                "description": directory / DESCRIPTION})  # fmt: skip

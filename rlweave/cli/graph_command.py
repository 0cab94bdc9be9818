"""`rlweave graph`: the component graph of an agent as a picture, its build in words, or the code of a method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.syntax import Syntax

from rlweave.algorithms.parts import Trainer
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli.console import output
from rlweave.cli.settings import ImportOption, collect_settings, help_of, make_config
from rlweave.errors import ConfigError, ExecutionError
from rlweave.runs.whole_files import write_whole


def graph(
    algorithm: Annotated[str, typer.Argument(help="Whose agent; `rlweave list algorithms` shows all.")],
    env: Annotated[str | None, typer.Option(help=help_of("env"))] = None,
    backend: Annotated[str | None, typer.Option(help=help_of("backend"))] = None,
    imports: ImportOption = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as for `rlweave train`.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help=r"YAML or JSON file of settings \[default: none].")] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help=r"Print the code that runs for this API method \[default: draw]."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="METHOD", help=r"Draw only what this API method uses \[default: all].")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the phases of the build.")] = False,
    out: Annotated[Path, typer.Option("--output", "-o", help="The picture, an SVG file.")] = Path("graph.svg"),
) -> None:
    """Draws the component graph of an agent, tells how it was built, or prints the code of one of its methods."""
    if explain and code is not None:
        raise ConfigError("one thing at a time", received="--explain and --code", fix="leave one of them out")
    chosen = get_algorithm(algorithm)
    given = collect_settings({"imports": imports, "env": env, "backend": backend}, assignments or [])
    resolved, _ = make_config(chosen, given, config)
    trainer = chosen.make_trainer(resolved, None)
    try:
        if code is not None:
            show_code(trainer, code)
        elif explain:
            typer.echo(trainer.explain(), nl=False)
        else:
            write_graph_picture(trainer, out, method)
            output().print(f"component graph: {out}")
    except ExecutionError as error:  # a wrong name on the command line, not a failed build
        raise ConfigError(error.what, where=error.where, received=error.received, fix=error.fix) from error
    finally:
        trainer.close()


def show_code(trainer: Trainer, method: str) -> None:
    """Prints the code of a method: with colours on a terminal, plain otherwise."""
    text = trainer.code(method)
    if output().is_terminal:
        output().print(Syntax(text, "python", background_color="default"))
    else:
        typer.echo(text)


def write_graph_picture(trainer: Trainer, path: Path, method: str | None = None) -> None:
    """Writes the picture of a trainer's component graph, or of one API method of it.

    Raises:
        ConfigError: When the file cannot be written.
    """
    picture = trainer.draw(method)
    try:
        write_whole(path, picture)
    except OSError as error:
        raise ConfigError("cannot write the picture", where=str(path), received=str(error)) from error

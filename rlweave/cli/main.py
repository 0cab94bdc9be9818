"""The program `rlweave`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import rlweave
from rlweave.cli.check_command import check
from rlweave.cli.check_env import check_env
from rlweave.cli.console import fail
from rlweave.cli.evaluate import evaluate
from rlweave.cli.export_command import export
from rlweave.cli.graph_command import graph
from rlweave.cli.list_command import list_names
from rlweave.cli.plan_command import plan
from rlweave.cli.plot import plot
from rlweave.cli.serve import serve
from rlweave.cli.settings import ResumeCommand
from rlweave.cli.train import EPILOG, resume, train
from rlweave.errors import RlweaveError

app = typer.Typer(
    help="Reinforcement-learning algorithms you can see, test piece by piece, and run anywhere.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EPILOG)(train)
app.command()(evaluate)
app.command(cls=ResumeCommand)(resume)
app.command()(export)
app.command()(serve)
app.command()(plot)
app.command()(graph)
app.command()(plan)
app.command()(check)
app.command("check-env")(check_env)
app.command("list")(list_names)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlweave {rlweave.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version, and end.")
    ] = False,
) -> None:
    pass


def _search_current_directory() -> None:
    """Makes modules of the current directory importable, as `python -m` does."""
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program; an error of rlweave is printed without a traceback.

    Args:
        arguments: The arguments after `rlweave`; None: those of this process.

    Raises:
        SystemExit: Always: 0 when all went well, 2 for wrong usage, 1 for a failure while running, 130 after Ctrl-C.
    """
    _search_current_directory()
    # a start makes a million objects that stay; by default Python looks for garbage among them 400 times
    gc.set_threshold(10_000)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="rlweave")
    except RlweaveError as error:
        fail(error)

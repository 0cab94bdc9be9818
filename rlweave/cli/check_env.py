"""`rlweave check-env`: an environment, checked for silent bugs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from rlweave.cli.console import output, results_alone
from rlweave.cli.settings import ImportOption
from rlweave.errors import ConfigError, EnvError
from rlweave.strict_json import to_json


def check_env(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="Id of Gymnasium, module:function, module:Class, or a module of PettingZoo's kind."
        ),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the environment and of the random actions.")] = 0,
    steps: Annotated[int, typer.Option(help="Random steps; the other checks repeat the first of them.")] = 1000,
    imports: ImportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Checks an environment: spaces, rewards, seeds, resets, ends, masks, memory. Ends with 1 if it finds something."""
    from rlweave.testing.checks import environments  # no other command needs it

    try:
        with results_alone(as_json):
            report = environments.check_env(env, seed, steps)
    except EnvError as error:  # there is nothing to check; what an environment raises is a finding
        raise ConfigError(error.what, where=error.where, received=error.received, fix=error.fix) from error
    if as_json:
        typer.echo(to_json(report.to_data()))
    else:
        output().print(escape(str(report)))
    sys.exit(0 if report.ok else 1)

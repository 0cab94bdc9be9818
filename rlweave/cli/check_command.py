"""`rlweave check`: components and agents, checked for silent bugs with no test written for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rlweave.algorithms.config import check_backend
from rlweave.algorithms.registry import algorithm_names
from rlweave.backends import LEARNING, backend_names, is_installed
from rlweave.cli.console import output, results_alone
from rlweave.cli.settings import ImportOption
from rlweave.errors import ConfigError, EnvError, RlweaveError
from rlweave.settings.sources import parse_assignments
from rlweave.strict_json import to_json

if TYPE_CHECKING:  # no other command needs them
    from rlweave.testing import Report

#: In place of the backends: all that are installed.
ALL = "all"


def check(
    target: Annotated[
        str | None,
        typer.Argument(help="An algorithm, a descriptor, or module:Name of a component, a descriptor, an agent."),
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="Where an agent acts: an id of Gymnasium, or module:function.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the algorithm.")
    ] = None,
    spaces: Annotated[Path | None, typer.Option(help="YAML or JSON file with the input spaces of a component.")] = None,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            "--backend", help="Compare on this backend; repeatable; all: on all. Agents learn on each that can."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every component and agent that is registered, of other packages, too.")
    ] = False,
    imports: ImportOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each subject, a line each.")
    ] = False,
) -> None:
    """Checks a component or an agent for silent bugs. Ends with 1 if it finds something."""
    if everything == (target is not None):
        fix = "rlweave check ppo --env CartPole-v1, rlweave check module:Component, or rlweave check --all"
        raise ConfigError("one subject is needed, or --all", received=f"{target!r}, --all {everything}", fix=fix)
    ok = True
    reports = _reports(target, env, parse_assignments(assignments or []), spaces, backends)
    while (report := _next(reports, as_json)) is not None:
        ok = ok and report.ok
        if as_json:
            typer.echo(to_json(report.to_data()))
        elif target is None and report.ok:
            output().print(escape(f"{report.subject}: nothing found"))
        else:
            output().print(escape(f"{report}\n"))
    sys.exit(0 if ok else 1)


def _next(reports: Iterator[Report], as_json: bool) -> Report | None:
    """The next report; None at the end. What cannot be checked is wrong usage, whatever says so."""
    try:
        with results_alone(as_json):
            return next(reports, None)
    except RlweaveError as error:
        fix = error.fix or ("see what `rlweave check-env` says of it" if isinstance(error, EnvError) else "")
        raise ConfigError(error.what, where=error.where, received=error.received, fix=fix) from error


def _reports(
    target: str | None,
    env: str | None,
    settings: dict[str, object],
    spaces: Path | None,
    backends: list[str] | None,
) -> Iterator[Report]:
    from rlweave import testing
    from rlweave.testing.checks import everything

    for name in backends or []:
        if name != ALL:
            check_backend(name)
    compared = ALL if ALL in (backends or ()) else backends
    wanted = [name for name in backend_names() if is_installed(name)] if compared == ALL else backends or []
    learn_on: list[str | None] = [name for name in wanted if name in LEARNING] or [None]
    if target is None:
        for descriptor in everything.registered():
            yield testing.check(descriptor, backends=compared)
        for name, place in everything.registered_agents():
            for backend in learn_on:
                yield testing.check_agent(name, place, backend=backend)
        return
    found = everything.find(target, None if spaces is None else str(spaces)) if ":" in target else target
    if isinstance(found, str) and found not in algorithm_names():
        found = next((descriptor for descriptor in everything.registered() if descriptor.name == found), found)
    if isinstance(found, testing.Descriptor):
        _refuse("a component", {"--env": env, "--set": settings})
        yield testing.check(found, backends=compared)
    else:
        _refuse("an agent", {"--spaces": spaces})
        for backend in learn_on:
            yield testing.check_agent(found, env or everything.environment_of(found), settings, backend)


def _refuse(subject: str, options: dict[str, object]) -> None:
    """Refuses options that say nothing of what is checked."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"{name} says nothing of {subject}", received=f"{name} {value}", fix="leave it out")

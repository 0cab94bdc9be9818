"""The consoles of all commands, so that their output looks alike."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from rlweave.errors import BackendError, CheckpointError, ConfigError, PlanError, RlweaveError, SpecError

#: Errors of wrong usage; the others come from running.
_USAGE_ERRORS = (BackendError, CheckpointError, ConfigError, SpecError)


def output() -> Console:
    """The console for results; a new one each time, as a test or a pipe may have replaced the stream."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def errors() -> Console:
    """The console for errors and warnings."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def results_alone(alone: bool = True) -> Iterator[None]:
    """Keeps what components and environments print away from results that a machine reads: it goes to the errors.

    Args:
        alone: Whether to do so.
    """
    with contextlib.redirect_stdout(sys.stderr) if alone else contextlib.nullcontext():
        yield


def fail(error: RlweaveError) -> NoReturn:
    """Prints an error and its causes, and ends the process: with 2 for wrong usage, else with 1."""
    errors().print(f"[bold red]error:[/] {escape(str(error))}")
    if not isinstance(error, _USAGE_ERRORS):  # these errors contain their causes
        for cause in _causes(error):
            errors().print(f"[bold red]cause:[/] {escape(cause)}")
    sys.exit(2 if isinstance(error, _USAGE_ERRORS) else 1)


def _causes(error: BaseException) -> Iterator[str]:
    """The causes of an error that its text does not contain.

    rlweave's own errors are complete, including the traceback from inside an environment. Any other error that an
    operator of a plan raised comes with its traceback; below other errors of rlweave it is a detail.
    """
    cause = error.__cause__
    if isinstance(cause, RlweaveError):
        yield str(cause)
        yield from _causes(cause)
    elif cause is not None and isinstance(error, PlanError):
        yield "".join(traceback.format_exception(cause)).rstrip()


def warn(text: str) -> None:
    """Prints a warning."""
    errors().print(f"[yellow]note:[/] {escape(text)}")


def show_files(files: Mapping[str, Path]) -> None:
    """Prints the paths of files that exist."""
    show_pairs([(name, str(path)) for name, path in files.items() if path.exists()])


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints names and values in two columns; nothing is cut off, however narrow the terminal."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        output().print(f"  {escape(name):<{width}}  {escape(text)}".rstrip(), soft_wrap=True)

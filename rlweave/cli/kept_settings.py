"""What `rlweave resume` says to an option of `rlweave train`: a run keeps its settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from rlweave.errors import ConfigError
from rlweave.runs.run_directory import RunDirectory


class ResumeCommand(TyperCommand):
    """Knows the options of `train`, of which it has only `--steps`: they are no slips of the pen."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words of the command line.

        Args:
            ctx: Of the call; its parent has the command `train`.
            args: The words after `resume`.

        Raises:
            ConfigError: One of them is an option of `train` alone.
        """
        settings = _options(ctx.parent.command.get_command(ctx.parent, "train"))
        asked = _asked(args, {option: takes for option, takes in settings.items() if option not in _options(self)})
        if asked:
            algorithm, config = _source(args)
            raise ConfigError(
                "a run keeps its settings: only its length can be another one when it goes on",
                where="rlweave resume",
                received=shlex.join(asked),
                fix=f"leave it out, or train anew with it: rlweave train {algorithm} --config {config} "
                f"{shlex.join(asked)}; a new length is --steps",
            )
        return super().parse_args(ctx, args)


def _options(command: Any) -> dict[str, bool]:
    """The options of a command, and whether a value follows."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    return {name: not own.is_flag for own in options for name in (*own.opts, *own.secondary_opts)}


def _asked(words: Sequence[str], options: dict[str, bool]) -> list[str]:
    """Those of the words that are among the options, and their values."""
    found: list[str] = []
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in options:
            found += words[place : place + (2 if options[name] and not equals else 1)]
    return found


def _source(words: Sequence[str]) -> tuple[str, str]:
    """Algorithm and settings of the run that the words name; placeholders if they name none."""
    for word in words:
        try:
            run = RunDirectory.open(word)
            return run.read_config()[0], shlex.quote(str(run.config_file))
        except ConfigError:
            continue  # not the run, but the value of an option
    return "ALGORITHM", "RUN/config.yaml"

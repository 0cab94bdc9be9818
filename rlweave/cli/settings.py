"""From command-line arguments to a validated configuration; and the checks of `rlweave resume`'s arguments."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig, check_backend, check_keys, resolve_config
from rlweave.errors import ConfigError
from rlweave.plugins import import_modules
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import describe_settings
from rlweave.settings.sources import parse_assignments, read_settings_file


def _import_all(names: list[str] | None) -> list[str] | None:
    import_modules(names or ())
    return names


ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=_import_all,
        is_eager=True,  # algorithms that it registers can be named by other options
        help="A module of your own to import first; repeatable; a run keeps it in its settings.",
    ),
]
"""Modules of the user's own, which register components, environments or algorithms."""

_BY_KEY = {setting.key: setting for setting in describe_settings(TrainConfig)}


#: The keys of options that have other names.
_KEYS = {"placement": "placement.name", "workers": "placement.workers"}


def help_of(option: str) -> str:
    """The help of an option that sets a key: its effect, unit and default."""
    setting = _BY_KEY[_KEYS.get(option, option)]
    unit = f", in {setting.unit}" if setting.unit and setting.unit not in setting.help else ""
    default = f"default: {setting.default}" if setting.default else "needed"
    return escape(f"{setting.help[0].upper()}{setting.help[1:]}{unit} [{default}].")


def collect_settings(options: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Merges options (`--seed 3`) and assignments (`--set seed=3`); both have the same precedence.

    Raises:
        ConfigError: When they contradict one another.
    """
    settings = parse_assignments(assignments)
    if isinstance(settings.get("placement"), str):
        settings["placement.name"] = settings.pop("placement")
    for name, value in options.items():
        if value is None:
            continue
        key = _KEYS.get(name, name)
        if key in settings and settings[key] != value:
            raise ConfigError(
                f"two values for {key!r}",
                received=f"--{name.replace('_', '-')} {value} and --set {key}={settings[key]}",
            )
        settings[key] = value
    return settings


def make_config(
    algorithm: Algorithm, settings: Mapping[str, Any], config_file: Path | None, use_presets: bool = True
) -> tuple[TrainConfig, bool]:
    """Resolves and checks the configuration of a training.

    Args:
        algorithm: The algorithm.
        settings: Dotted settings from the command line, which win.
        config_file: YAML or JSON.
        use_presets: Whether settings tuned for the environment are used, below the file.

    Returns:
        The configuration, and whether tuned settings are in it.

    Raises:
        ConfigError: For a wrong setting or environment.
        BackendError: For an unknown backend, or one that is not installed.
    """
    file = read_settings_file(config_file) if config_file is not None else {}
    named = file.pop("algorithm", algorithm.name)
    if named != algorithm.name:
        raise ConfigError(
            "the config file is for another algorithm", where=str(config_file), received=repr(named),
            fix=f"rlweave train {named}, or take out the line `algorithm:`",
        )  # fmt: skip
    env = settings.get("env", file.get("env"))
    preset = algorithm.preset_of(env) if use_presets else None
    if env is None and algorithm.config_class.model_fields["env"].is_required():
        raise ConfigError("no environment given", fix="for example --env CartPole-v1")
    check_keys(algorithm.config_class, {**file, **settings})
    config = resolve_config(algorithm.config_class, presets=preset, file=file, sets=settings)
    algorithm.check_environment(config.env)
    check_backend(config.backend)
    return config, bool(preset)


def settings_text(algorithm: Algorithm, env: str | None = None, width: int = 100) -> str:
    """All settings of an algorithm: a line with key, default, unit and type each, and the help below.

    Args:
        algorithm: The algorithm.
        env: Environment whose tuned settings are shown as defaults.
        width: Of a line, in characters; keys, defaults and types are never cut.
    """
    lines = [f"Settings of {algorithm.name} (--set key=value):"]
    tuned = algorithm.preset_of(env) or {}
    for setting in describe_settings(algorithm.config_class):
        value = _lookup(tuned, setting.key)
        default = setting.default if value is None else f"{value} (tuned for {env}; else {setting.default})"
        unit = f" {setting.unit}" if setting.unit else ""
        lines.append(f"\n{setting.key} = {default or '(needed)'}{unit}  [{setting.type}]")
        lines += textwrap.wrap(
            setting.help, width, initial_indent="    ", subsequent_indent="    ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


def _lookup(settings: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        if not isinstance(settings, Mapping) or part not in settings:
            return None
        settings = settings[part]
    return settings


class ResumeCommand(TyperCommand):
    """The command `resume`, which explains options of `train`: it has only `--steps` itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words of the command line.

        Args:
            ctx: Of the call; its parent has the command `train`.
            args: The arguments after `resume`.

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
    """The options of a command, and whether each takes a value."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    return {name: not own.is_flag for own in options for name in (*own.opts, *own.secondary_opts)}


def _asked(words: Sequence[str], options: dict[str, bool]) -> list[str]:
    """The given options of a command, and their values."""
    found: list[str] = []
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in options:
            found += words[place : place + (2 if options[name] and not equals else 1)]
    return found


def _source(words: Sequence[str]) -> tuple[str, str]:
    """Algorithm and settings of the run in the arguments; placeholders if there is none."""
    for word in words:
        try:
            run = RunDirectory.open(word)
            return run.read_config()[0], shlex.quote(str(run.config_file))
        except ConfigError:
            continue  # not the run, but the value of an option
    return "ALGORITHM", "RUN/config.yaml"

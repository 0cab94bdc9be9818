"""`rlweave list`: names for the command line."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.backends import backend_names, is_installed, offer_of
from rlweave.cli.console import output, show_pairs
from rlweave.cli.settings import ImportOption
from rlweave.errors import ConfigError, nearest
from rlweave.plugins import one_line
from rlweave.settings.sources import dotted
from rlweave.strict_json import to_json

Rows = list[tuple[str, str]]


def list_names(
    kind: Annotated[
        str | None, typer.Argument(help="algorithms, backends, components or environments \\[default: all, in short]")
    ] = None,
    match: Annotated[str, typer.Option(help="Only names with this text in them.")] = "",
    presets: Annotated[
        bool, typer.Option("--presets", help="The settings tuned for environments, algorithm by algorithm.")
    ] = False,
    imports: ImportOption = None,
) -> None:
    """Lists algorithms, backends (and the extra to install), environments and components."""
    if presets:
        if kind not in (None, "algorithms"):
            raise ConfigError("only algorithms have presets", received=repr(kind), fix="rlweave list --presets")
        _list_presets(match)
        return
    if kind is not None and kind not in _KINDS:
        raise ConfigError("nothing of this kind to list", received=repr(kind), fix=nearest(kind, _KINDS))
    for name in [kind] if kind else _KINDS:
        rows = [row for row in _KINDS[name]() if match.lower() in row[0].lower()]
        if name == "environments" and kind is None and not match:
            count = f"{len(rows)} in Gymnasium's registry; `rlweave list environments` shows them"
            rows = [(count, "")]
        _print(name, rows)


def algorithms() -> Rows:
    """The algorithms and their summaries."""
    rows = []
    for name in algorithm_names():
        try:
            rows.append((name, get_algorithm(name).summary))
        except ConfigError as error:
            rows.append((name, one_line(error)))
    return rows


def _list_presets(match: str) -> None:
    """The settings tuned for environments, as `--set` takes them."""
    for name in algorithm_names():
        with contextlib.suppress(ConfigError):  # a broken plug-in, which `rlweave list algorithms` names
            presets = get_algorithm(name).presets
            for environment in presets:
                if match.lower() in f"{name}, {environment}".lower():
                    output().print(f"[bold]{escape(name)}, {escape(environment)}[/]")
                    show_pairs(
                        [(key, to_json(value)) for key, value in dotted(presets[environment], TrainConfig.model_fields)]
                    )


def backends() -> Rows:
    """The backends: their version, or how to install them."""
    rows = []
    for name in backend_names():
        try:
            offer = offer_of(name)
        except ConfigError as error:
            rows.append((name, one_line(error)))
            continue
        assert offer is not None
        if is_installed(name):
            framework = offer.requires[0]
            rows.append((name, f"installed: {framework} {_version(framework)}{offer.use and f'; {offer.use}'}"))
        else:
            rows.append((name, f"not installed: {offer.installation}"))
    return rows


def _version(module: str) -> str:
    """The version of a package; some modules come in packages of several names (tensorflow-cpu)."""
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return importlib.metadata.version(importlib.metadata.packages_distributions()[module][0])


def components() -> Rows:
    """The components that a spec can name."""
    import rlweave.components  # noqa: F401  (registers them)
    from rlweave.graph import registered_components
    from rlweave.graph.specs import broken_plugins

    algorithms()  # some bring components of their own
    rows = [(name, _first_line(cls.__doc__)) for name, cls in sorted(registered_components().items())]
    return rows + [(name, one_line(error)) for name, error in sorted(broken_plugins().items())]


def environments() -> Rows:
    """The environments that Gymnasium knows, rlweave's own among them."""
    import gymnasium

    import rlweave.envs  # noqa: F401  (registers them)
    from rlweave.envs.parallel_api import OWN

    return [(name, "") for name in sorted(gymnasium.registry)] + [(name, "several agents") for name in sorted(OWN)]


_KINDS: dict[str, Callable[[], Rows]] = {
    "algorithms": algorithms,
    "backends": backends,
    "components": components,
    "environments": environments,
}


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _print(title: str, rows: Rows) -> None:
    output().print(f"[bold]{title}[/]")
    show_pairs(rows or [("none", "")])

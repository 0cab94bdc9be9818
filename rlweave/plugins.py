"""Objects that other packages offer by entry points: one that is broken is named, and disturbs nothing else."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from rlweave.errors import ConfigError


def package_of(point: EntryPoint) -> str:
    """The package that offers a plug-in."""
    return point.dist.name if point.dist is not None else point.value


def load_plugin(point: EntryPoint) -> Any:
    """Loads a plug-in.

    Raises:
        ConfigError: It fails; names the package and the reason in one line.
    """
    try:
        return point.load()
    except Exception as error:
        reason = str(getattr(error, "what", error)).partition("\n")[0]
        received = getattr(error, "received", "")
        raise plugin_error(point, f"{type(error).__name__}: {reason}{f' ({received})' if received else ''}") from error


def plugin_error(point: EntryPoint, reason: str) -> ConfigError:
    """The error for a plug-in that cannot be used."""
    package = package_of(point)
    return ConfigError(
        f"plug-in {point.name!r} of package {package!r} cannot be used",
        received=reason,
        fix=f"correct, update or uninstall {package}",
    )


def one_line(error: ConfigError) -> str:
    """An error as a row of a table."""
    return f"{error.what}: {error.received}"

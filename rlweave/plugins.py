"""Code that is loaded by name: extensions of rlweave itself, and plug-ins of third parties.

What is broken in a plug-in is named, and disturbs nothing else.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from rlweave.errors import ConfigError, RlweaveError

#: What only some users need: the core knows it by these names, and imports it when somebody asks for it.
EXTENSIONS = {
    name: f"rlweave.extensions.{name}"
    for name in ("diagnosis", "drawing", "eager", "explain", "placement", "replication", "staging")
}


def extension(name: str) -> Any:
    """The module of an extension, imported on first use."""
    return importlib.import_module(EXTENSIONS[name])


def package_of(point: EntryPoint) -> str:
    """The package that offers a plug-in."""
    return point.dist.name if point.dist is not None else point.value


def import_named(
    name: str, error: type[RlweaveError], what: str, *, received: str, fix: str, where: str = ""
) -> ModuleType:
    """Imports a module that a user named.

    Args:
        name: Of the module.
        error: What is raised where it cannot be imported.
        what: What it is, "the module of a callback".
        received: For the error.
        fix: For the error, where the module or something that it imports is not there.
        where: For the error.

    Raises:
        RlweaveError: Of the class `error`: it is not there, or raised an error itself, whose place is named.
    """
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise error(f"{what} cannot be imported: {missing}", where=where, received=received, fix=fix) from missing
    except Exception as broken:
        last = traceback.extract_tb(broken.__traceback__)[-1]
        reason = f"{type(broken).__name__}: {broken}"
        place = "" if isinstance(broken, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        raise error(
            f"{what} cannot be imported: {reason}{place}", where=where, received=received, fix="correct it"
        ) from broken


def imported(name: str) -> Any:
    """What `"module:attribute"` names, for names that rlweave itself has written down."""
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


def import_modules(names: Sequence[str]) -> None:
    """Imports the modules of the setting `imports`.

    Raises:
        ConfigError: One cannot be imported.
    """
    for name in names:
        fix = "install it, start where it lies, or correct its name"
        import_named(name, ConfigError, "a module", where="imports", received=repr(name), fix=fix)


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
    ours = "install rlweave again, such as with `pip install -e .`: what it registers is of another version"
    return ConfigError(
        f"plug-in {point.name!r} of package {package!r} cannot be used",
        received=reason,
        fix=ours if package == "rlweave" else f"correct, update or uninstall {package}",
    )


def one_line(error: ConfigError) -> str:
    """An error as a row of a table."""
    return f"{error.what}: {error.received}"

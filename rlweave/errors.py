"""Every error that rlweave raises on purpose, in one small hierarchy.

An error says what was wrong, where, the value received, and the fix. All of them are picklable, because
they cross process borders (sub-process environments, remote workers).
"""

from __future__ import annotations

import difflib
import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path


class RlweaveError(Exception):
    """Base of all errors of rlweave.

    Args:
        what: One sentence that says what was wrong.
        where: The component, operator, field or file that it concerns.
        received: The offending value, already formatted for a reader.
        fix: What to do about it.
    """

    def __init__(self, what: str, *, where: str = "", received: str = "", fix: str = "") -> None:
        self.what, self.where, self.received, self.fix = what, where, received, fix
        lines = [what]
        lines += [f"  where:    {where}"] if where else []
        lines += [f"  received: {received}"] if received else []
        lines += [f"  fix:      {fix}"] if fix else []
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.received, self.fix)


def _rebuild(cls: type[RlweaveError], what: str, where: str, received: str, fix: str) -> RlweaveError:
    return cls(what, where=where, received=received, fix=fix)


class SpaceError(RlweaveError, ValueError):
    """A space that cannot exist, or data that does not fit its space."""


class BuildError(RlweaveError):
    """A component graph that cannot be built."""


class ExecutionError(RlweaveError):
    """A built graph that was called wrongly, or cannot run on this backend."""


class BackendError(RlweaveError):
    """A backend that is unknown, not installed, or not able to do what was asked."""


class SpecError(RlweaveError, ValueError):
    """A component spec with an unknown type or key."""


class ConfigError(RlweaveError, ValueError):
    """A configuration value that is unknown, contradictory or out of range."""


class EnvError(RlweaveError):
    """An environment that failed, hung, or broke its contract."""


class PlanError(RlweaveError):
    """A dataflow plan that is wrongly composed, or an operator that failed while running."""


class CheckpointError(RlweaveError):
    """A checkpoint that is missing, damaged or does not fit."""


class ExportError(RlweaveError):
    """A policy that cannot be exported, or an artefact that is not what it was made of."""


class EnvWarning(UserWarning):
    """An environment was lost with its process, and another one took its place."""


class PlanWarning(UserWarning):
    """A dataflow plan runs, but probably not as it was meant to."""


def nearest(name: str, options: Iterable[str]) -> str:
    """Formats the nearest right name for an error's fix, with all options when none is near.

    >>> nearest("denes", ["dense", "conv2d"])
    "did you mean 'dense'?"
    >>> nearest("zzz", ["dense", "conv2d"])
    "choose one of: 'conv2d', 'dense'"
    """
    names = sorted(options)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "choose one of: " + ", ".join(repr(option) for option in names)


def install_command(extra: str) -> str:
    """The command that installs an extra into the rlweave that is running: a checkout, a folder, or a release.

    Args:
        extra: Name of the extra, such as `"torch"`.
    """
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        here = checkout == Path.cwd()
        return f"pip install -e '{'.' if here else checkout}[{extra}]'"
    try:
        origin = importlib.metadata.distribution("rlweave").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        origin = None
    if origin is not None:  # it was installed from a folder, a file or a repository
        return f"pip install 'rlweave[{extra}] @ {json.loads(origin)['url']}'"
    return f"pip install 'rlweave[{extra}]'"

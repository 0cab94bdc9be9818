"""A mutant of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlweave.testing.checks.findings import Cause


@dataclass(frozen=True)
class EnvMutant:
    """A bug and what is right instead.

    Args:
        wrong: The class that has the bug.
        right: The same without the bug.
        cause: What the check has to name.
    """

    wrong: Any
    right: Any
    cause: Cause

    @property
    def name(self) -> str:
        """The name of the wrong class, in words."""
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in self.wrong.__name__).lstrip("-")

    @property
    def what_happened(self) -> str:
        """The line about the real bug."""
        return " ".join((self.wrong.__doc__ or "").split())

"""What becomes of a plan when an operator or an actor fails: stop, skip the item, or replace the actor in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rlweave.errors import ConfigError

OnError = Literal["stop", "skip", "replace"]


class Hanging(Exception):  # noqa: N818  (the cause in an error of the plan)
    """An actor did not answer in time."""


@dataclass(frozen=True)
class FailureRule:
    """How failures of one operator are dealt with; see ``Stream.on_error``.

    Attributes:
        on_error: ``"stop"`` ends the plan with an error. ``"skip"`` leaves the item out and counts it. ``"replace"``
            makes the actor anew, in place, and counts that.
        timeout: Seconds that an actor may take for one call before it counts as hanging, which is a failure that
            cannot be skipped.
        attempts: Failures in a row, without an item between them, after which an actor is given up (or an operator
            that skips stops the plan).
        first_delay: Seconds before an actor is replaced for the first time. They double with every failure in a row.
        longest_delay: Where doubling ends.
    """

    on_error: OnError = "stop"
    timeout: float = 600.0
    attempts: int = 5
    first_delay: float = 0.1
    longest_delay: float = 10.0

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ConfigError(
                "unknown failure rule",
                where="on_error",
                received=repr(self.on_error),
                fix=f"one of {get_args(OnError)}",
            )
        if not (self.timeout > 0 and self.attempts >= 1 and 0 <= self.first_delay <= self.longest_delay):
            raise ConfigError(
                "a failure rule needs a timeout above 0, at least one attempt, and delays that do not shrink",
                where="on_error",
                received=f"timeout={self.timeout}, attempts={self.attempts}, delays {self.first_delay} to "
                f"{self.longest_delay}",
            )

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row.

        >>> [FailureRule("replace", longest_delay=0.5).delay(n) for n in (1, 2, 3, 4)]
        [0.1, 0.2, 0.4, 0.5]
        """
        return min(self.first_delay * 2.0 ** (failures - 1), self.longest_delay)

    def note(self) -> str:
        """The rule, for ``explain``; nothing for the default."""
        return "" if self.on_error == "stop" else f"on_error={self.on_error}"


class Supervisor:
    """Which actors of a group work, which are to be made anew and when, and which are given up.

    Args:
        size: Number of actors.
        rule: How their failures are dealt with.
    """

    def __init__(self, size: int, rule: FailureRule) -> None:
        self.rule = rule
        self.given_up = [False] * size
        self.gave_up = False
        """Whether any has been given up."""
        self.replaced = [0] * size
        """How many actors each place has had before its present one."""
        self._in_a_row = [0] * size
        self._due_at: dict[int, float] = {}

    def delivered(self, index: int) -> None:
        """Notes that an actor works."""
        self._in_a_row[index] = 0

    def failed(self, index: int) -> bool:
        """Notes a failure; whether there have been too many in a row."""
        self._in_a_row[index] += 1
        return self._in_a_row[index] >= self.rule.attempts

    def bury(self, index: int, now: float) -> None:
        """Plans the replacement of an actor, or gives it up after too many failures in a row."""
        if self._in_a_row[index] >= self.rule.attempts:
            self.given_up[index] = self.gave_up = True
        else:
            self._due_at[index] = now + self.rule.delay(self._in_a_row[index])

    def take_due(self, now: float) -> list[int]:
        """The places whose new actors are to be made now."""
        due = [index for index, at in self._due_at.items() if at <= now]
        for index in due:
            del self._due_at[index]
            self.replaced[index] += 1
        return due

    def waiting(self, index: int) -> bool:
        """Whether a place has no actor now, and will have one."""
        return index in self._due_at

    @property
    def wakes_at(self) -> float | None:
        """When the next actor is to be made."""
        return min(self._due_at.values()) if self._due_at else None

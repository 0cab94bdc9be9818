"""Rules for failures of operators and actors, and the supervisor that restarts actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from rlweave.errors import ConfigError
from rlweave.flow.context import Context
from rlweave.flow.engine import ANSWER_SECONDS, Call

OnError = Literal["stop", "skip", "replace"]


class Hanging(Exception):  # noqa: N818  (the cause in an error of the plan)
    """An actor did not answer in time."""


@dataclass(frozen=True)
class FailureRule:
    """How failures of one operator are dealt with; see ``Stream.on_error``.

    Attributes:
        on_error: ``"stop"`` ends the plan with an error. ``"skip"`` leaves the item out and counts it. ``"replace"``
            restarts the actor in place, and counts that.
        timeout: Seconds that an actor may take for one call before it counts as hanging, which is a failure that
            cannot be skipped.
        attempts: Failures in a row, without an item between them, after which an actor is given up (or an operator
            that skips stops the plan).
        first_delay: Seconds before an actor is replaced for the first time. They double with every failure in a row.
        longest_delay: Upper bound of the doubled delay.
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
    """Restarts the actors of an operator: knows which work, which are to be restarted and when, and which are given up.

    A source has one for its workers or shards, and so has a learner in an actor. The plan goes on meanwhile.

    Args:
        size: Number of actors.
        rule: How their failures are dealt with.
        context: Of the plan.
        name: Of the operator, for the counters.
        restart: Restarts an actor in place; returns a call that is done when it is there.
        may_restart: Whether a new actor's initial state is available; called with True, it checks again.
    """

    def __init__(
        self,
        size: int,
        rule: FailureRule,
        context: Context,
        name: str,
        restart: Callable[[int], Call],
        may_restart: Callable[[bool], bool] = lambda look: True,
    ) -> None:
        self.rule = rule
        self.given_up = [False] * size
        self.gave_up = False
        """Whether any has been given up."""
        self.replaced = [0] * size
        """How often each actor has been replaced."""
        self._engine, self._clock, self._now = context.engine, context.clock, context.clock.now
        self._counters, self._name = context.counters, name
        self._restart, self._may_restart = restart, may_restart
        self._in_a_row = [0] * size
        self._due_at: dict[int, float] = {}
        self._restarts: dict[int, tuple[Call, float]] = {}
        """Actors under construction: the call that is done when they are there, and its start time."""

    def delivered(self, index: int) -> None:
        """Notes that an actor works."""
        self._in_a_row[index] = 0

    def failed(self, index: int) -> bool:
        """Notes a failure; whether there have been too many in a row."""
        self._in_a_row[index] += 1
        return self._in_a_row[index] >= self.rule.attempts

    def stop(self, index: int) -> None:
        """Plans the restart of an actor, or gives it up after too many failures in a row."""
        if self._in_a_row[index] >= self.rule.attempts:
            self.given_up[index] = self.gave_up = True
        else:
            self._due_at[index] = self._now() + self.rule.delay(self._in_a_row[index])

    def stopped(self, index: int) -> bool:
        """Whether an actor cannot be asked: it is given up, or not restarted yet."""
        return self.given_up[index] or index in self._due_at or index in self._restarts

    def restarting(self) -> bool:
        """Whether any actor is being restarted."""
        return bool(self._due_at or self._restarts)

    def restart(self, index: int) -> None:
        """Starts to make an actor. Raises an error that the engine reports at once."""
        self._restarts[index] = self._restart(index), self._now()

    def advance(self) -> Iterator[tuple[int, Exception | None]]:
        """Restarts the actors whose delay is over.

        Yields:
            Each actor that is there now, with None, or that could not be made, with the error, which the caller handles
            before it asks for the next actor.
        """
        if self._due_at and self._may_restart(False):
            now = self._now()
            for index in [index for index, at in self._due_at.items() if at <= now]:
                del self._due_at[index]
                self.replaced[index] += 1
                self._counters.replace(self._name)
                try:
                    self.restart(index)
                except Exception as error:  # in this process, factories fail at once
                    yield index, error
        if not self._restarts:
            return
        there = set(map(id, self._engine.wait([call for call, _ in self._restarts.values()], 0)))
        for index, (call, began) in list(self._restarts.items()):
            done = id(call) in there
            if not done and self._now() - began <= ANSWER_SECONDS:
                continue
            if done and not self._may_restart(True):
                continue  # its initial state may have been lost on the way; it gets the next one
            del self._restarts[index]
            try:
                if not done:
                    raise Hanging(f"was not made within {ANSWER_SECONDS:g} seconds")
                call.result()
            except Exception as error:
                yield index, error
            else:
                yield index, None

    def waits_on(self) -> list[Call]:
        """Calls that are done when new actors are there; none while these have no initial state."""
        return [call for call, _ in self._restarts.values()] if self._may_restart(False) else []

    def wakes_at(self) -> float | None:
        """When an actor is to be made, or has taken too long to be made."""
        if not self._may_restart(False):
            return None
        times = [began + ANSWER_SECONDS for _, began in self._restarts.values()]
        return min([*times, *self._due_at.values()], default=None)

    def wait(self) -> None:
        """Waits for the next step of a restart, but for at most a second."""
        if calls := self.waits_on():
            self._engine.wait(calls, 1.0)
        elif (at := self.wakes_at()) is not None:
            self._clock.sleep(min(1.0, max(0.0, at - self._now())))

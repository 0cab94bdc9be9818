"""Engines: where actors live and how they are called. The local one runs everything in this process, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Actor = Any
"""An engine's own handle on an actor; a plan only passes it back."""


class Call(Protocol):
    """A call of an actor's method that was started and may have finished."""

    def result(self) -> Any:
        """What the method returned; raises what it raised. Only for a call that ``Engine.wait`` said is done."""
        ...


class Engine(Protocol):
    """The five things a plan asks of the place it runs on.

    Calls of one actor are carried out in the order in which they were started. ``wait`` is the only one that blocks.
    """

    name: str

    def create_actors(self, factories: Sequence[Callable[[], Any]]) -> list[Actor]:
        """Makes one actor of each factory."""
        ...

    def call(self, actor: Actor, method: str, *arguments: Any) -> Call:
        """Starts a call and returns at once (on the local engine: after it ran)."""
        ...

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """The calls that are done, in the given order, after waiting until at least one of them is.

        Args:
            calls: What to wait for.
            timeout: Seconds to wait at most; None waits as long as it takes, 0 only looks.
        """
        ...

    def put(self, value: Any) -> Any:
        """Makes a value available to all actors and returns what to give to ``call`` in its place."""
        ...

    def kill(self, actor: Actor) -> None:
        """Ends an actor; its ``close`` method is called if it has one and can still be reached."""
        ...


class LocalCall:
    """A call that has already run."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """What the method returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value


class LocalEngine:
    """Everything in this process, one thing after the other: deterministic, and the default.

    A call runs when it is started. So a worker that has an item requested ahead makes it with the weights of that
    moment, and asynchronous plans have the same weight lag here in every run: `gather_async(1)` over n workers gives
    items that are at most n - 1 versions old.
    """

    name = "local"

    def create_actors(self, factories: Sequence[Callable[[], Any]]) -> list[Actor]:
        """Makes the objects, in order."""
        return [factory() for factory in factories]

    def call(self, actor: Actor, method: str, *arguments: Any) -> LocalCall:
        """Runs the method now; an error is kept for ``result``."""
        try:
            return LocalCall(getattr(actor, method)(*arguments), None)
        except Exception as error:
            return LocalCall(None, error)

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """All of them: they have run."""
        return list(calls)

    def put(self, value: Any) -> Any:
        """The value itself."""
        return value

    def kill(self, actor: Actor) -> None:
        """Calls the actor's ``close`` method."""
        actor.close()

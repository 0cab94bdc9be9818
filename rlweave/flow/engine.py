"""Engines: where actors live and how they are called. The local one runs everything in this process, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rlweave.flow.resources import Resources

Actor = Any
"""An engine's own handle on an actor; a plan only passes it back."""


class ActorLost(Exception):  # noqa: N818  (a fact about an actor; users see the error that a plan makes of it)
    """The process of an actor has ended, or cannot be reached: no call of it will ever give a result."""


class ArgumentFailed(Exception):  # noqa: N818  (its cause is the error)
    """An argument of a call was to be the result of another call, which failed; the error itself is the cause."""


class Call(Protocol):
    """A call of an actor's method that was started and may have finished."""

    def result(self) -> Any:
        """What the method returned; raises what it raised. Only for a call that ``Engine.wait`` said is done.

        The value belongs to the caller: no array in it is read-only, or keeps anything of the engine's alive.

        Raises:
            ActorLost: If there will be no result.
        """
        ...


class Engine(Protocol):
    """The few things a plan asks of the place it runs on.

    Calls of one actor are carried out in the order in which they were started. ``wait`` is the only one that blocks,
    beside ``kill``, which is bounded. Nothing is ever tried twice: a call may have changed its actor.

    Attributes:
        name: As in ``explain``.
        in_process: Whether actors are objects of this process.
    """

    name: str
    in_process: bool

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Actor]:
        """Makes one actor of each factory, and returns at once: a factory that fails makes every call fail.

        Args:
            factories: One per actor, without arguments.
            resources: What each of them holds while it lives.
        """
        ...

    def call(self, actor: Actor, method: str, *arguments: Any) -> Call:
        """Starts a call and returns at once (on the local engine: after it ran).

        An argument may be what ``put`` gave, or a call of another actor: then the method gets its value.
        """
        ...

    def call_in_parts(self, actor: Actor, method: str, parts: int, *arguments: Any) -> Sequence[Call]:
        """Starts a call of a method that returns a tuple, and returns at once.

        Each value of the tuple gets a call of its own. So one can be fetched, and another one be given to another actor
        without coming here. All are done at the same time. Where the method raises, so does each of them.

        Args:
            actor: Whose method.
            method: Its name.
            parts: Length of the tuple.
            arguments: As in ``call``.
        """
        ...

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """Calls that are done, in the given order, after waiting until at least one of them is.

        Args:
            calls: What to wait for.
            timeout: Seconds to wait at most; None waits as long as it takes, 0 only looks.
        """
        ...

    def fetch(self, calls: Sequence[Call]) -> None:
        """Brings the results of calls that are done all at once, where that costs less than each by itself."""
        ...

    def put(self, value: Any) -> Any:
        """Makes a value available to all actors and returns what to give to ``call`` in its place."""
        ...

    def kill(self, actors: Sequence[Actor], grace: float = 0.0) -> None:
        """Ends actors, with the processes that they live in.

        Args:
            actors: Which. One that has ended already is no error.
            grace: Seconds, for all of them together, in which their ``close`` methods may run first.
        """
        ...

    def capacity(self) -> Mapping[str, float] | None:
        """All resources by name, in use or not; None where they are not counted."""
        ...


class LocalCall:
    """A call that has already run: of the local engine, or of a plan before it was resumed, on whichever engine."""

    __slots__ = ("_error", "_value")
    is_call = True
    done = True

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """What the method returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value


def value_of(argument: Any) -> Any:
    """An argument, or the result of the call that it is."""
    result = getattr(argument, "result", None)
    if result is None or not hasattr(argument, "is_call"):
        return argument
    try:
        return result()
    except Exception as error:
        raise ArgumentFailed("an argument could not be made") from error


class LocalEngine:
    """Everything in this process, one thing after the other: deterministic, and the default.

    A call runs when it is started. So a worker that has an item requested ahead makes it with the weights of that
    moment, and asynchronous plans have the same weight lag here in every run: `gather_async(1)` over n workers gives
    items that are at most n - 1 versions old.
    """

    name = "local"
    in_process = True

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Actor]:
        """Makes the objects, in order; raises at once what a factory raises."""
        return [factory() for factory in factories]

    def call(self, actor: Actor, method: str, *arguments: Any) -> LocalCall:
        """Runs the method now; an error is kept for ``result``."""
        try:
            return LocalCall(getattr(actor, method)(*map(value_of, arguments)), None)
        except Exception as error:
            return LocalCall(None, error)

    def call_in_parts(self, actor: Actor, method: str, parts: int, *arguments: Any) -> list[LocalCall]:
        """Runs the method now."""
        try:
            return [LocalCall(value, None) for value in self.call(actor, method, *arguments).result()]
        except Exception as error:
            return [LocalCall(None, error)] * parts

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """All of them: they have run."""
        return list(calls)

    def fetch(self, calls: Sequence[Call]) -> None:
        """Nothing: they are here."""

    def put(self, value: Any) -> Any:
        """The value itself."""
        return value

    def kill(self, actors: Sequence[Actor], grace: float = 0.0) -> None:
        """Calls each actor's ``close`` method; if time is given for it, the first error counts when all are closed."""
        errors = []
        for actor in actors:
            try:
                getattr(actor, "close", lambda: None)()  # a learner need not have one
            except Exception as error:
                errors.append(error)
        if grace and errors:
            raise errors[0]

    def capacity(self) -> None:
        """Not counted: workers take turns."""


CLOSE_SECONDS = 5.0
"""How long all actors of a plan together may take to close before they are ended without it."""

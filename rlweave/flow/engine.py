"""Engines: where actors live and how they are called; the clock. The local one runs all in this process, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rlweave.errors import PlanError
from rlweave.flow.resources import Resources


class Clock(Protocol):
    """Where a plan and its engine read the time."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Lets that many seconds pass."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def __init__(self) -> None:
        self.now = time.perf_counter
        """Seconds since some fixed moment (bound directly: it is read twice per operator and item)."""

    def sleep(self, seconds: float) -> None:
        """Sleeps that many seconds."""
        time.sleep(seconds)


class FakeClock:
    """A clock that moves only when it is told to: plans with waiting in them are tested in no time.

    >>> clock = FakeClock()
    >>> clock.advance(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds that were let pass so far."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """The same as ``advance``: sleeping takes no real time."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Lets time pass.

        Raises:
            ValueError: If ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock never goes back: advance({seconds})")
        self._now += seconds


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
    """The few operations that a plan needs of the place it runs on.

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
        """Fetches the results of calls that are done, all at once if that costs less."""
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


ANSWER_SECONDS = 120.0
"""How long actors may take to be made, or to answer a question, all of them together."""


def wait_for_all(engine: Engine, clock: Clock, calls: Sequence[Call], seconds: float) -> list[Call]:
    """Waits until all calls are done, or the time is over.

    Returns:
        The calls that are not done.
    """
    waiting = list(calls)
    deadline = clock.now() + seconds
    while waiting:
        done = {id(call) for call in engine.wait(waiting, max(0.0, deadline - clock.now()))}
        if not done and clock.now() >= deadline:
            break
        waiting = [call for call in waiting if id(call) not in done]
    return waiting


def results_of(
    engine: Engine,
    clock: Clock,
    calls: Sequence[Call],
    whose: str,
    seconds: float = ANSWER_SECONDS,
    lost: bool = False,
) -> list[Any]:
    """The results of all calls, in order; raises what they raise.

    Args:
        engine: Where the actors live.
        clock: Where the time is read.
        calls: The calls.
        whose: Their actors, for the error.
        seconds: How long all of them may take together.
        lost: Whether None stands for the result of an actor that is lost, in place of an error.

    Raises:
        PlanError: If they take too long, as actors do that wait for resources which nobody gives back.
    """
    _wait_for_answers(engine, clock, calls, whose, seconds)
    return [_result(call, lost) for call in calls]


def answers_of(
    engine: Engine,
    clock: Clock,
    calls: Sequence[Call],
    operator: str,
    method: str,
    names: Sequence[str],
    lost: bool = False,
) -> list[Any]:
    """The answers of an operator's actors to a question, in order.

    Args:
        engine: Where the actors live.
        clock: Where the time is read.
        calls: The calls that ask them.
        operator: Name of the operator.
        method: What is called.
        names: Of the actors.
        lost: Whether None stands for the answer of an actor that is lost, in place of an error.

    Raises:
        PlanError: If one fails, naming operator and actor, with the original error as its cause; or if they take too
            long.
    """
    _wait_for_answers(engine, clock, calls, f"the actors of {operator!r}", ANSWER_SECONDS)
    answers = []
    for call, name in zip(calls, names, strict=True):
        try:
            answers.append(_result(call, lost))
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            raise PlanError(
                f"operator {operator!r} failed: {type(error).__name__}: {said}",
                where=f"operator {operator!r}, {name}",
                received=f"{method}(), asked of it",
                fix="see its cause, the original error",
            ) from error
    return answers


def _wait_for_answers(engine: Engine, clock: Clock, calls: Sequence[Call], whose: str, seconds: float) -> None:
    waiting = wait_for_all(engine, clock, calls, seconds)
    if waiting:
        raise PlanError(
            f"{whose} do not answer",
            where=f"engine {engine.name!r}",
            received=f"{len(waiting)} of {len(calls)} answers missing after {seconds:g} seconds",
            fix="see whether others hold the cluster's resources, or whether making a worker hangs",
        )


def _result(call: Call, lost: bool) -> Any:
    try:
        return call.result()
    except ActorLost:
        if not lost:
            raise
        return None

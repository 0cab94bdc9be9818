"""An engine in this process whose actors work at the same time: for those that meet, as ranks do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from rlweave.flow.engine import Actor, Call, LocalEngine, value_of


class LockstepCall:
    """A call that a thread works on."""

    __slots__ = ("_future",)
    is_call = True

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def done(self) -> None:
        """Returns when the call is done."""
        wait([self._future])

    def result(self) -> Any:
        """What the method returned; raises what it raised."""
        return self._future.result()


class LockstepEngine(LocalEngine):
    """Everything in this process, each actor in a thread of its own.

    A call begins when it is started, and waiting for some waits for all of them: so what a plan sees, and in which
    order, does not depend on which thread is faster, and a plan whose actors meet is as deterministic as they are.
    """

    name = "lockstep"

    def __init__(self) -> None:
        self._threads: dict[int, ThreadPoolExecutor] = {}

    def call(self, actor: Actor, method: str, *arguments: Any) -> LockstepCall:  # type: ignore[override]
        """Starts the method in the actor's thread."""
        thread = self._threads.get(id(actor))
        if thread is None:
            thread = self._threads[id(actor)] = ThreadPoolExecutor(1, f"actor {len(self._threads)}")
        return LockstepCall(thread.submit(lambda: getattr(actor, method)(*map(value_of, arguments))))

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """All of them, when they are done; whoever meets another actor has a time-out of its own."""
        for call in calls:
            if isinstance(call, LockstepCall):
                call.done()
        return list(calls)

    def kill(self, actors: Sequence[Actor], grace: float = 0.0) -> None:
        """Ends the threads, when their calls are done, and closes the actors as the local engine does."""
        for actor in actors:
            thread = self._threads.pop(id(actor), None)
            if thread is not None:
                thread.shutdown()
        super().kill(actors, grace)

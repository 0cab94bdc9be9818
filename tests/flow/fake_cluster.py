"""A simulated engine whose actors die as processes do: with the calls they are at, and all that waits for these."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from rlweave.flow import ActorLost, Call, FakeClock, Resources
from rlweave.flow.engine import ArgumentFailed

Seconds = Callable[[Any, str], float]
"""How long an actor takes for a method."""


class ClusterCall:
    """A call that begins when its actor and the calls among its arguments are done."""

    is_call = True

    def __init__(
        self, cluster: SimulatedCluster, actor: Any, value: Any, error: Exception | None, ends: float, needs: list[Any]
    ) -> None:
        self._cluster, self._actor, self._value, self._error = cluster, actor, value, error
        self.ends, self.needs = ends, needs
        self.gone = False
        """Whether it was lost after it was done."""

    def __deepcopy__(self, memo: Any) -> ClusterCall:
        return ClusterCall(self._cluster, self._actor, copy.deepcopy(self._value), self._error, self.ends, self.needs)

    def lost_at(self) -> float | None:
        """When its actor died, if that was before it was done."""
        died = self._cluster.died_at.get(id(self._actor))
        return died if died is not None and died <= self.ends else None

    @property
    def arrives(self) -> float:
        """When it is known what became of it."""
        times = [self.ends, self.lost_at(), *(need.lost_at() for need in self.needs)]
        return min(time for time in times if time is not None)

    def result(self) -> Any:
        if self.gone or self.lost_at() is not None:
            raise ActorLost("crashed")
        if any(need.gone or need.lost_at() is not None for need in self.needs):
            raise ArgumentFailed("an argument could not be made") from ActorLost("crashed")
        if self._error is not None:
            raise self._error
        return self._value


class SimulatedCluster:
    """Actors elsewhere, without any time passing: a call that waits for another actor's call fails with that actor."""

    name = "simulated cluster"
    in_process = False

    def __init__(self, clock: FakeClock, seconds: Seconds) -> None:
        self.clock, self.seconds = clock, seconds
        self.died_at: dict[int, float] = {}
        self.actors: list[Any] = []
        self.called: list[tuple[float, str]] = []
        self.waits = 0
        self._busy_until: dict[int, float] = {}

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Any]:
        actors = [factory() for factory in factories]
        self.actors += actors  # so that no id is used twice
        return actors

    def crash(self, inner: Any) -> None:
        """Ends the actor that a learner is, or that a worker lives in."""
        (actor,) = [actor for actor in self.actors if inner in (actor, getattr(actor, "worker", None))]
        self.kill([actor])

    def call(self, actor: Any, method: str, *arguments: Any) -> ClusterCall:
        now = self.clock.now()
        self.called.append((now, method))
        needs = [argument for argument in arguments if isinstance(argument, ClusterCall)]
        begins = max([now, self._busy_until.get(id(actor), 0.0), *(need.ends for need in needs)])
        if id(actor) in self.died_at:
            return ClusterCall(self, actor, None, None, now, needs)
        ends = begins + self.seconds(actor, method)
        self._busy_until[id(actor)] = ends
        if any(need.gone or ((died := need.lost_at()) is not None and died <= now) for need in needs):
            return ClusterCall(self, actor, None, None, ends, needs)
        given = [argument._value if isinstance(argument, ClusterCall) else argument for argument in arguments]
        try:
            return ClusterCall(self, actor, getattr(actor, method)(*given), None, ends, needs)
        except Exception as error:
            return ClusterCall(self, actor, None, error, ends, needs)

    def call_in_parts(self, actor: Any, method: str, parts: int, *arguments: Any) -> list[ClusterCall]:
        whole = self.call(actor, method, *arguments)
        values = [None] * parts if whole._value is None else whole._value
        return [ClusterCall(self, actor, value, whole._error, whole.ends, whole.needs) for value in values]

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        self.waits += 1
        pending: list[Any] = list(calls)
        done = [call for call in pending if getattr(call, "done", False) or call.arrives <= self.clock.now()]
        if not done and pending and timeout != 0:
            first = min(call.arrives for call in pending) - self.clock.now()
            self.clock.advance(first if timeout is None else min(first, timeout))
            done = [call for call in pending if call.arrives <= self.clock.now()]
        return done

    def fetch(self, calls: Sequence[Call]) -> None:
        pass

    def put(self, value: Any) -> Any:
        return value

    def kill(self, actors: Sequence[Any], grace: float = 0.0) -> None:
        for actor in actors:
            self.died_at.setdefault(id(actor), self.clock.now())

    def capacity(self) -> None:
        return None

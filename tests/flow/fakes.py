"""Workers, learners, memories and an engine that are as small as they can be, for tests of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlweave.flow import ActorLost, Call, Episode, FakeClock, Resources, SampleBatch
from rlweave.flow.engine import value_of


class FakeWorker:
    """Makes batches of ``steps`` rows: who made them, a running step number, and the weight version they saw."""

    def __init__(self, number: int = 0, steps: int = 4, items: int | None = None) -> None:
        self.number, self.steps, self.items = number, steps, items
        self.made = 0
        self.version = -1
        self.received: list[int] = []
        self.messages: list[tuple[Any, int]] = []
        self.episodes: list[Episode] = []
        self.closed = False

    def sample(self) -> SampleBatch:
        if self.items is not None and self.made >= self.items:
            raise StopIteration
        first = self.made * self.steps
        self.made += 1
        self.episodes.append(Episode(float(self.number), self.steps))
        return SampleBatch(
            {
                "worker": np.full(self.steps, self.number),
                "step": np.arange(first, first + self.steps),
                "version": np.full(self.steps, self.version),
            }
        )

    def set_weights(self, weights: Any, version: int) -> None:
        self.version = int(weights["w"])
        self.received.append(version)

    def episode_stats(self) -> Sequence[Episode]:
        episodes, self.episodes = self.episodes, []
        return episodes

    def greet(self, message: Any, version: int) -> None:
        self.messages.append((message, version))

    def close(self) -> None:
        self.closed = True


class FakeLearner:
    """Counts its updates; its one weight is that count."""

    def __init__(self) -> None:
        self.updates = 0
        self.weights_read = 0
        self.batches: list[Any] = []
        self.keep = True

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        self.updates += 1
        if self.keep:
            self.batches.append(batch)
        return {"loss": 1.0 / self.updates}

    def get_weights(self) -> dict[str, np.ndarray]:
        self.weights_read += 1
        return {"w": np.array(self.updates)}


class FakeMemory:
    """Keeps steps as a count and serves batches of ``batch_size`` rows."""

    def __init__(self, batch_size: int = 8, capacity: int = 1_000_000) -> None:
        self.batch_size, self.capacity = batch_size, capacity
        self.stored = 0
        self.sampled = 0
        self.priorities: list[tuple[Any, Any]] = []

    def insert(self, batch: SampleBatch) -> None:
        self.stored = min(self.capacity, self.stored + batch.num_steps)

    def ready(self, minimum: int) -> bool:
        return self.stored >= minimum

    def sample(self) -> SampleBatch:
        assert self.stored, "sampled from an empty memory"
        self.sampled += self.batch_size
        return SampleBatch({"index": np.arange(self.batch_size)})

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        self.priorities.append((indices, priorities))


def workers(n: int, steps: int = 4, items: int | None = None) -> list[FakeWorker]:
    return [FakeWorker(number, steps, items) for number in range(n)]


class SimulatedCall:
    """A call whose result arrives at some time of a fake clock."""

    is_call = True

    def __init__(self, value: Any, error: Exception | None, arrives: float) -> None:
        self._value, self._error, self.arrives = value, error, arrives

    def lose(self) -> None:
        """Its actor died before the result arrived."""
        self._error = ActorLost("crashed")

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class SimulatedEngine:
    """Actors that take time, without any time passing: the second engine that promises are tested on.

    A call does its work when it is started, and its result arrives after the actor's ``seconds``; an actor does one
    call after the other. Waiting moves the fake clock to the next arrival.
    """

    name = "simulated"
    in_process = True

    def __init__(self, clock: FakeClock, seconds: Callable[[int], float] = lambda index: 1.0) -> None:
        self.clock, self.seconds = clock, seconds
        self.busy_until: dict[int, float] = {}
        self.number: dict[int, int] = {}
        self.waits: list[float | None] = []
        self.puts = 0
        self.made = 0
        self.alive: list[Any] = []
        self.crashed: set[int] = set()
        self.resources: dict[str, float] | None = None

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Any]:
        actors = [factory() for factory in factories]
        for actor in actors:
            self.number[id(actor)] = self.made
            self.made += 1
        self.alive += actors  # so that no id is used twice
        return actors

    def crash(self, actor: Any) -> None:
        """Ends an actor's process: what it is doing is lost, and it takes no more calls."""
        self.crashed.add(id(actor))

    def call(self, actor: Any, method: str, *arguments: Any) -> SimulatedCall:
        if id(actor) in self.crashed:
            return SimulatedCall(None, ActorLost("crashed"), self.clock.now())
        cost = self.seconds(self.number[id(actor)]) if method in ("next_items", "next_apart", "update") else 0.0
        arrives = max(self.clock.now(), self.busy_until.get(id(actor), 0.0)) + cost
        self.busy_until[id(actor)] = arrives
        try:
            return SimulatedCall(getattr(actor, method)(*map(value_of, arguments)), None, arrives)
        except Exception as error:
            return SimulatedCall(None, error, arrives)

    def call_in_parts(self, actor: Any, method: str, parts: int, *arguments: Any) -> list[SimulatedCall]:
        call = self.call(actor, method, *arguments)
        values = [None] * parts if call._error is not None else call._value
        return [SimulatedCall(value, call._error, call.arrives) for value in values]

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        self.waits.append(timeout)
        pending: list[SimulatedCall] = list(calls)  # type: ignore[arg-type]
        done = [call for call in pending if getattr(call, "done", False) or call.arrives <= self.clock.now()]
        if not done and pending and timeout != 0:
            first = min(call.arrives for call in pending) - self.clock.now()
            self.clock.advance(first if timeout is None else min(first, timeout))
            done = [call for call in pending if call.arrives <= self.clock.now()]
        return list(done)

    def fetch(self, calls: Sequence[Call]) -> None:
        pass

    def put(self, value: Any) -> Any:
        self.puts += 1
        return value

    def kill(self, actors: Sequence[Any], grace: float = 0.0) -> None:
        for actor in actors:
            self.crashed.add(id(actor))
            if grace:
                actor.close()

    def capacity(self) -> dict[str, float] | None:
        return self.resources


def payloads(items: Iterable[Any]) -> list[Any]:
    return [item.payload for item in items]

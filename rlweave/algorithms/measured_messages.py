"""What a message between two processes costs on this machine: an actor on Ray that sends ready-made items."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rlweave.flow import Episode, ParallelRollouts, ReportMetrics, TrainOneStep, WorkerGroup
from rlweave.flow.costs import MessageCosts
from rlweave.flow.engine import Engine

#: Items before anything is measured; items of a measurement; measurements, of which the median counts.
_WARM_UP, _ITEMS, _ROUNDS = 200, 200, 5
#: Calls under way to an actor that is busy for so many seconds, and how often is looked at them.
_CALLS, _LOOKS, _SPIN = 200, 20, 1.0
#: What a gather takes itself for each call under way, whenever an item comes; measured with 4,096 of them.
_OWN_LOOK = 4e-7

#: Of a machine with two cores and Ray 2.5x, for where Ray is not installed.
TYPICAL = MessageCosts(call=2e-4, result=2e-4, actor=3e-4, look=2e-6, latency=1e-4)


class _Echo:
    """A worker that gives the same item again and again."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def sample(self) -> Any:
        """The item."""
        return self._item

    def set_weights(self, weights: Any, version: int) -> None:
        """Takes nothing over."""

    def episode_stats(self) -> Sequence[Episode]:
        """None."""
        return ()

    def processor_seconds(self) -> float:
        """Of its process so far."""
        return time.process_time()

    def accept(self, *arguments: Any) -> None:
        """Takes anything."""

    def spin(self, seconds: float) -> None:
        """Is busy for so long."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass


class _Giver:
    """A learner that gives the same weights again and again."""

    def __init__(self, weights: Any) -> None:
        self._weights = weights

    def update(self, batch: Any) -> Mapping[str, Any]:
        """Learns nothing."""
        return {}

    def get_weights(self) -> Any:
        """The weights."""
        return self._weights


class Cycle(NamedTuple):
    """Seconds of an item that is asked for, made and received: of the driver's processor, of the actor's, in all."""

    driver: float
    actor: float
    wall: float


class Sent(NamedTuple):
    """Seconds of what a call takes, beside those of a call alone: of the driver to send it, of the actor to get it."""

    driver: float
    actor: float


class WeightMessages(NamedTuple):
    """Seconds of weights beside their own: of the driver to send a version, of a worker to receive it."""

    put: float
    receive: float


def measure_messages(engine: Engine, item: Any, weights: Any) -> tuple[MessageCosts, WeightMessages]:
    """Times calls of an actor with items and weights of the right size.

    Args:
        engine: Where the actor lives.
        item: What it answers.
        weights: What it is sent.
    """
    alone = _cycle(engine, item, None)
    with_weights = _cycle(engine, item, weights)
    waits = max(0.0, alone.wall - alone.driver - alone.actor)
    messages = MessageCosts(
        call=alone.driver / 2, result=alone.driver / 2, actor=alone.actor, look=_look(engine), latency=waits / 2
    )
    put, receive = with_weights.driver - alone.driver, with_weights.actor - alone.actor
    return messages, WeightMessages(max(0.0, put), max(0.0, receive))


def measure_sent(engine: Engine, argument_lists: Mapping[str, Sequence[Any]]) -> dict[str, Sent]:
    """Times calls with arguments, beside a call without.

    Args:
        engine: Where the actor lives.
        argument_lists: Arguments of each call, by name.
    """
    actors = engine.create_actors([partial(_Echo, None)])
    try:
        driver, actor = _called(engine, actors[0], ())
        found = {}
        for name, arguments in argument_lists.items():
            more = _called(engine, actors[0], arguments)
            found[name] = Sent(max(0.0, more[0] - driver), max(0.0, more[1] - actor))
        return found
    finally:
        engine.kill(actors)


def _called(engine: Engine, actor: Any, arguments: Sequence[Any]) -> tuple[float, float]:
    """Processor seconds of the driver and of the actor for a call and its answer."""

    def call(method: str, *given: Any) -> Any:
        started = engine.call(actor, method, *given)
        engine.wait([started])
        return started.result()

    cycles = []
    for _ in range(_ROUNDS):
        there, here = call("processor_seconds"), time.process_time()
        for _ in range(_ITEMS):
            call("accept", *arguments)
        here = time.process_time() - here
        cycles.append((here / _ITEMS, (call("processor_seconds") - there) / _ITEMS))
    first, second = zip(*cycles, strict=True)
    return sorted(first)[_ROUNDS // 2], sorted(second)[_ROUNDS // 2]


def _cycle(engine: Engine, item: Any, weights: Any) -> Cycle:
    workers = WorkerGroup([partial(_Echo, item)])
    items = ParallelRollouts(workers).gather_async()
    if weights is not None:
        items = items.for_each(TrainOneStep(_Giver(weights), workers))
    plan = ReportMetrics(items, workers)
    with plan.start(engine):
        _take(plan, _WARM_UP)
        cycles = []
        for _ in range(_ROUNDS):
            (actor,), driver, wall = plan.ask_workers("processor_seconds"), time.process_time(), time.perf_counter()
            _take(plan, _ITEMS)
            driver, wall = time.process_time() - driver, time.perf_counter() - wall
            (actor_now,) = plan.ask_workers("processor_seconds")
            cycles.append(Cycle(driver / _ITEMS, (actor_now - actor) / _ITEMS, wall / _ITEMS))
    return Cycle(*(sorted(values)[_ROUNDS // 2] for values in zip(*cycles, strict=True)))


def _take(plan: ReportMetrics, items: int) -> None:
    for _ in zip(range(items), plan.items(), strict=False):
        pass


def _look(engine: Engine) -> float:
    """Processor seconds for each call that is under way, whenever somebody looks which are done."""
    actors = engine.create_actors([partial(_Echo, None)])
    try:
        engine.wait([engine.call(actors[0], "spin", 0.0)])
        calls = [engine.call(actors[0], "spin", seconds) for seconds in (_SPIN, *[0.0] * _CALLS)]
        began = time.process_time()
        for _ in range(_LOOKS):
            engine.wait(calls, 0)
        return (time.process_time() - began) / (_LOOKS * len(calls)) + _OWN_LOOK
    finally:
        engine.kill(actors)

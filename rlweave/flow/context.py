"""What a running plan shares with its operators: engine, clock, counters, actors and weight channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlweave.flow.clock import Clock
from rlweave.flow.counters import Counters, LagHistogram, MeanMetrics
from rlweave.flow.engine import Actor, Engine
from rlweave.flow.protocols import Learner
from rlweave.flow.weights import LearnerRecord, WeightChannel
from rlweave.flow.workers import SourceActor, WorkerGroup


class Context:
    """Made by the plan when it starts, and given to every operator.

    Attributes:
        engine: Where actors live.
        clock: Where the time is read.
        counters: The plan's absolute counters.
        step_number: Number of the scheduler's present step.
        metrics: Where learners put their metrics until the next report.
        train_lag: Weight lag of items when a learner trains on them.
    """

    def __init__(self, engine: Engine, clock: Clock, counters: Counters) -> None:
        self.engine, self.clock, self.counters = engine, clock, counters
        self.step_number = 0
        self.metrics = MeanMetrics()
        self.train_lag = LagHistogram()
        self.stages: dict[tuple[int, ...], list[tuple[str, Callable[[Any], Any]]]] = {}
        self._actors: dict[tuple[int, ...], list[Actor]] = {}
        self._channels: dict[tuple[int, ...], WeightChannel] = {}
        self._learners: dict[int, LearnerRecord] = {}
        self._source_of: dict[str, tuple[WeightChannel, int]] = {}

    def actors(self, group: WorkerGroup) -> list[Actor]:
        """The actors of a group, made at the first call."""
        if group.key not in self._actors:
            stages: Sequence[tuple[str, Callable[[Any], Any]]] = self.stages.get(group.key, [])
            factories = [partial(SourceActor, factory, stages) for factory in group.factories]
            self._actors[group.key] = self.engine.create_actors(factories)
        return self._actors[group.key]

    def channel(self, group: WorkerGroup) -> WeightChannel:
        """The way of weights to a group of workers."""
        if group.key not in self._channels:
            self._channels[group.key] = WeightChannel(self.engine, self.actors(group))
        return self._channels[group.key]

    def learner(self, learner: Learner) -> LearnerRecord:
        """The record of a learner, the same one for the same object."""
        return self._learners.setdefault(id(learner), LearnerRecord(learner, self.engine))

    def name_source(self, source: str, channel: WeightChannel, index: int) -> None:
        """Notes which worker makes the items with this source name."""
        self._source_of[source] = (channel, index)

    def worker_of(self, source: str) -> tuple[WeightChannel, int] | None:
        """Channel and number of the worker that made an item; None for items from elsewhere."""
        return self._source_of.get(source)

    def channels(self) -> list[WeightChannel]:
        """All weight channels of the plan."""
        return list(self._channels.values())

    def version(self) -> int:
        """Number of updates of all learners of the plan."""
        return sum(record.updates for record in self._learners.values())

    def kill_actors(self) -> None:
        """Ends all actors."""
        for actors in self._actors.values():
            while actors:
                self.engine.kill(actors.pop())

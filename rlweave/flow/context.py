"""What a running plan shares with its operators: actors and clock, counters, and the channels of weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.counters import Counters, LagHistogram, MeanMetrics
from rlweave.flow.engine import CLOSE_SECONDS, Actor, ActorLost, Call, Clock, Engine, answers_of
from rlweave.flow.learner import LearnerActor, LearnerRecord
from rlweave.flow.protocols import Episode, Learner
from rlweave.flow.reports import UnreportedEpisodes
from rlweave.flow.shards import ReplayShards, ShardRecord
from rlweave.flow.weights import WeightChannel
from rlweave.flow.workers import SourceActor, WorkerGroup


class Turn:
    """The scheduler's present step.

    Attributes:
        number: Of the step.
        only_source: Whether the plan has one gather for which all else waits.
        patience: Seconds that the step may wait at that gather.
        waits_until: End of that time, once the step has begun to wait.
    """

    def __init__(self, only_source: bool = False) -> None:
        self.number, self.only_source = 0, only_source
        self.patience = 0.0
        self.waits_until: float | None = None


class Counting:
    """What operators count, and what reports are made of.

    Attributes:
        counters: The plan's absolute counters.
        metrics: Metrics of learners until the next report.
        train_lag: Weight lag of items when a learner trains on them, in updates of that learner.
        train_lags: The same by the operator that trains.
        episodes: The newest episodes that came with items, by worker group, until the next report.
    """

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.metrics = MeanMetrics()
        self.train_lag = LagHistogram()
        self.train_lags: dict[str, LagHistogram] = {}
        self.episodes: defaultdict[tuple[int, ...], UnreportedEpisodes] = defaultdict(UnreportedEpisodes)

    def note_train_lag(self, operator: str, lag: int) -> None:
        """Counts an item that an operator trains on, with a lag."""
        self.train_lag.add(lag)
        self.train_lags.setdefault(operator, LagHistogram()).add(lag)

    def counting_state(self) -> dict[str, Any]:
        """Metrics that are unreported, and how old weights were."""
        return {
            "metrics": self.metrics.state_dict(),
            "train_lag": self.train_lag.state_dict(),
            "train_lags": {name: lag.state_dict() for name, lag in self.train_lags.items()},
        }

    def load_counting_state(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.metrics.load_state_dict(state["metrics"])
        self.train_lag.load_state_dict(state["train_lag"])
        for name, counts in state["train_lags"].items():
            self.train_lags.setdefault(name, LagHistogram()).load_state_dict(counts)


class Actors:
    """The actors of a plan, where they live, and the time.

    Attributes:
        engine: Where actors live.
        clock: Where the time is read.
        stages: Operators that run beside the workers of a group, by name.
        fragments: Items that the workers of a group make per call.
        stopped: Tells of each actor of a group whether it is stopped and not restarted yet.
        given_up: Of each actor of a group, whether it was given up after too many failures.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine, self.clock = engine, clock
        self.stages: dict[tuple[int, ...], list[tuple[str, Any]]] = {}
        self.fragments: dict[tuple[int, ...], int] = {}
        self._actors: dict[tuple[int, ...], list[Actor]] = {}
        self.stopped: dict[tuple[int, ...], Callable[[int], bool]] = {}
        self.given_up: dict[tuple[int, ...], Sequence[bool]] = {}

    def actors(self, group: WorkerGroup) -> list[Actor]:
        """The actors of a group, made at the first call.

        Raises:
            PlanError: If the engine runs actors in other processes, but the workers are objects of this one.
        """
        if group.key not in self._actors:
            if group.exists() and not self.engine.in_process:
                raise PlanError(
                    f"worker objects of this process cannot live on engine {self.engine.name!r}",
                    where="WorkerGroup",
                    received=f"{len(group)} worker objects",
                    fix="give WorkerGroup a factory for each worker",
                )
            factories = [self._factory(group, index, 0) for index in range(len(group))]
            self._actors[group.key] = self.engine.create_actors(factories, group.resources)
        return self._actors[group.key]

    def _factory(self, group: WorkerGroup, index: int, replaces: int) -> Callable[[], SourceActor]:
        stages: Sequence[tuple[str, Any]] = self.stages.get(group.key, [])
        count = self.fragments.get(group.key, 1)
        return partial(group.actor_class, group.factories[index], stages, replaces, not self.engine.in_process, count)

    def stop_actor(self, group: WorkerGroup, index: int) -> None:
        """Ends an actor that failed, with its process."""
        self.engine.kill([self._actors[group.key][index]])

    def ask_living(
        self, group: WorkerGroup, method: str, arguments: Sequence[tuple[Any, ...] | None], operator: str, source: str
    ) -> list[Any]:
        """Calls a method of the actors of a group, and waits for the answers.

        Args:
            group: The group.
            method: Of the actors.
            arguments: Of each actor's call; None for one that is not to be called.
            operator: Name of the operator that asks, for errors.
            source: Name of the actors' source, for errors.

        Returns:
            The answers in order; None for those who were not called, were stopped and are not there again, or are lost.

        Raises:
            PlanError: If one of them raises, or they do not answer.
        """
        actors = self.actors(group)
        stopped = self.stopped.get(group.key, lambda index: False)
        asked = [n for n, own in enumerate(arguments) if own is not None and not stopped(n)]
        calls = [self.engine.call(actors[index], method, *(arguments[index] or ())) for index in asked]
        names = [f"{source}/{index}" for index in asked]
        found = answers_of(self.engine, self.clock, calls, operator, method, names, lost=True)
        answers = dict(zip(asked, found, strict=True))
        return [answers.get(index) for index in range(len(actors))]


class Context(Actors, Counting):
    """Everything that operators get from a running plan: also learners, and the channels of their weights.

    Attributes:
        turn: The scheduler's present step.
    """

    def __init__(self, engine: Engine, clock: Clock, counters: Counters, only_source: bool = False) -> None:
        Actors.__init__(self, engine, clock)
        Counting.__init__(self, counters)
        self.turn = Turn(only_source)
        self._channels: dict[tuple[int, ...], WeightChannel] = {}
        self._learners: dict[int, LearnerRecord] = {}
        self._shards: dict[tuple[int, ...], ShardRecord] = {}
        self._source_of: dict[str, tuple[WeightChannel, int]] = {}

    def restart_actor(self, group: WorkerGroup, index: int, replaces: int) -> Call:
        """Restarts an actor in place; it gets its predecessor's weights and messages before it is asked for an item.

        Returns:
            A call that is done when the actor is there.
        """
        (actor,) = self.engine.create_actors([self._factory(group, index, replaces)], group.resources)
        self._actors[group.key][index] = actor
        self.channel(group).replace(index, actor)
        return self.engine.call(actor, "shares_weights")

    def channel(self, group: WorkerGroup) -> WeightChannel:
        """The weight channel to a group of workers."""
        if group.key not in self._channels:
            name = f"{len(group)} workers"
            actors, made = self.actors(group), not group.exists()
            self._channels[group.key] = WeightChannel(self.engine, actors, self.clock, name, made)
        return self._channels[group.key]

    def learner(self, learner: Learner | LearnerActor) -> LearnerRecord:
        """The record of a learner, the same one for the same object."""
        if id(learner) not in self._learners:
            self._learners[id(learner)] = LearnerRecord(learner, self.engine)
        return self._learners[id(learner)]

    def shards(self, shards: ReplayShards) -> ShardRecord:
        """The record of a memory in shards, the same one for the same memory."""
        if shards.key not in self._shards:
            self._shards[shards.key] = ShardRecord(shards, self.engine, self.clock, self.actors(shards), self.counters)
        return self._shards[shards.key]

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

    def new_episodes(self, group: WorkerGroup) -> UnreportedEpisodes:
        """The episodes of a group since the last call."""
        found = self.episodes.pop(group.key, UnreportedEpisodes())
        if not self.engine.in_process:  # they came with the items
            return found
        for actor in self.actors(group):
            call = self.engine.call(actor, "episode_stats")
            self.engine.wait([call], None)
            try:
                found.extend([Episode(*episode) for episode in call.result()])
            except ActorLost:
                continue  # so are its episodes
        return found

    def state_dict(self) -> dict[str, Any]:
        """Counts and unreported metrics, without the states of actors, learners and memories."""
        lags = [channel.gather_lag.state_dict() for channel in self.channels()]
        return {**self.counting_state(), "gather_lag": lags}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state; other keys in it are ignored."""
        self.load_counting_state(state)
        for channel, lag in zip(self.channels(), state["gather_lag"], strict=True):
            channel.gather_lag.load_state_dict(lag)

    def kill_actors(self) -> None:
        """Ends all actors, within a bounded time."""
        actors = [actor for group in self._actors.values() for actor in group]
        actors += [record.actor for record in self._learners.values() if record.actor is not None]
        for group in self._actors.values():
            group.clear()
        self.engine.kill(actors, CLOSE_SECONDS)

"""The part that both gathers share: they ask sources for items, and receive them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlweave.errors import CheckpointError, PlanError
from rlweave.flow.codec import decode, encode, load_state, state_of
from rlweave.flow.context import Context
from rlweave.flow.engine import ActorLost, Call
from rlweave.flow.envelope import (
    ABSORBED,
    END,
    NOT_READY,
    UNKNOWN_VERSION,
    AbsorbedAt,
    Envelope,
    Pulled,
    Signal,
    referenced,
)
from rlweave.flow.failures import Failures
from rlweave.flow.item_types import check_type
from rlweave.flow.operator import Operator, Port
from rlweave.flow.plan_errors import check_workers, failure
from rlweave.flow.protocols import Episode
from rlweave.flow.sources import RolloutSource
from rlweave.flow.workers import Arrival, Requested, SourceItem


class Gather(Operator):
    """Asks sources for items, and receives them."""

    state: ClassVar[tuple[str, ...]] = ("_sequence", "_over")
    may_wait = True
    on_error_choices = ()

    by_reference = False
    """Whether items stay where they are made."""

    def __init__(self, name: str, upstream: Port) -> None:
        if not upstream.parallel:
            raise PlanError(
                f"{name}() needs a parallel stream",
                where=f"operators {upstream.node.name!r} and {name!r}",
                received=f"{upstream.describe()}, gathered already",
                fix=f"leave out {name}()",
            )
        self.stages: list[Operator] = []
        source = upstream.node
        while source.beside is not None:
            self.stages.insert(0, source)
            source = source.inputs[0].node
        assert isinstance(source, RolloutSource)
        self.source = source
        self.enter([upstream], name)
        self.outputs = [Port(self, 0, upstream.item_type)]
        self._requested: deque[Requested] = deque()
        self._ready: set[int] = set()
        """Identities of calls that are known to be done."""
        self._arrived: deque[Arrival] = deque()
        self._sequence = [0] * len(source.group)
        self._over = [False] * len(source.group)
        self._may_skip_look = False
        self._right: set[type] = {Signal}
        """Types of items that passed the check."""
        self.calls_per_source = 1
        """Calls of one source that may be under way at a time."""
        self.waits_for_all = True
        """Whether it waits for an item of every source that was asked, without a time limit."""
        self._blocking: list[Call] = []
        self._blocked_in_step = -1

    def prepare(self, context: Context) -> None:
        """Tells the actors which operators each item goes through before it leaves them."""
        context.fragments[self.source.group.key] = self.source.fragments
        context.stages[self.source.group.key] = [(stage.name, stage) for stage in self.stages]

    def start(self, context: Context) -> None:
        """Looks up the actors and their weight channel."""
        self._engine = context.engine
        self._actors = context.actors(self.source.group)
        self._channel = context.channel(self.source.group)
        self._channel.name = repr(self.source.name)
        self._failures = Failures(self.source, self.stages, context)
        self._names = [f"{self.source.name}/{index}" for index in range(len(self._actors))]
        for index, name in enumerate(self._names):
            context.name_source(name, self._channel, index)

    # -- asking -------------------------------------------------------------------------------------------------

    def _live(self) -> list[int]:
        """Sources that can be asked."""
        return [index for index, over in enumerate(self._over) if not over and not self._failures.stopped(index)]

    # What follows runs for every item, and mostly cold, between two items of workers that use the same cores: each
    # call of a function costs many times what it costs in a tight loop. So these are few, and failures, which are
    # rare, are looked for at one place (`Failures.last_error`).

    def _request(self, index: int, in_round: int = 0) -> None:
        now, channel, source = self._now, self._channel, self.source
        started = now()
        try:
            newer = channel.due(index)
        except Exception as error:  # the learner's, which reads its weights
            envelope = Envelope(None, self._names[index], self._sequence[index], channel.version)
            raise failure(f"weights for {source.name}", envelope, error) from error
        if not source.always_asked:
            newer = (*source.asked(index), *newer)
        payloads: Sequence[Call] = ()
        if self.by_reference:
            parts = 1 + source.fragments * (self.stages[-1].pieces if self.stages else 1)
            call, *payloads = self._engine.call_in_parts(self._actors[index], "next_apart", parts, *newer)
        else:
            call = self._engine.call(self._actors[index], "next_items", *newer)
        source.timer.seconds += now() - started
        self._may_skip_look = self._context.turn.only_source and not self._engine.in_process
        sent, versions = channel.sent[index], channel.sent_versions[index]
        self._requested.append(Requested(index, call, sent, started, in_round, versions, payloads))

    def _first_done(self, admitted: Callable[[Requested], bool] | None = None) -> Requested | None:
        """The call that was started first among those that are known to be done; looks again if there is none."""
        ready = self._ready
        found = self._known_done(admitted) if ready else None
        if found is not None:
            return found
        turn, failures = self._context.turn, self._failures
        patience = 0.0  # it may wait only if nothing else in the plan could move
        if turn.patience and self.waits_for_all and (failures.last_error is None or not failures.restarting()):
            now, until = self._now(), failures.hangs_at
            if turn.waits_until is None:  # bounded over all waits of a step, so that stop() takes effect
                turn.waits_until = now + turn.patience
            if turn.waits_until < until:
                until = turn.waits_until
            if until > now:
                patience = until - now
        if self._may_skip_look and not patience:
            # The scheduler waits next, which looks as well. A caller that steps again without waiting gets a look here.
            self._may_skip_look = False
            return None
        requested = self._requested
        unknown = [request.call for request in requested if id(request.call) not in ready]
        done = self._engine.wait(unknown, patience) if unknown else []
        if len(done) == 1 and not ready and admitted is None and self.calls_per_source == 1:
            (call,) = done  # no choice, and this runs for every item
            for request in requested:
                if request.call is call:
                    return request
        ready.update(map(id, done))
        return self._known_done(admitted)

    def _known_done(self, admitted: Callable[[Requested], bool] | None) -> Requested | None:
        passed: set[int] = set()  # an actor's calls are done in order, but an engine may report a later one first
        for request in self._requested:
            if request.actor not in passed:
                if id(request.call) in self._ready and (admitted is None or admitted(request)):
                    return request
                passed.add(request.actor)
        return None

    def _forget(self, request: Requested) -> None:
        self._requested.remove(request)
        self._ready.discard(id(request.call))

    # -- receiving -----------------------------------------------------------------------------------------------

    def _take(self, request: Requested) -> list[Arrival] | None:
        """Receives the items of a call that is done; None if there are none, because it failed or was the end."""
        self._requested.remove(request)
        if self._ready:
            self._ready.discard(id(request.call))
        index, failures = request.actor, self._failures
        failures.heard_of[index] = self._now()
        try:
            items: list[SourceItem] = request.call.result()
        except Exception as error:
            self._engine.fetch(request.payloads)  # Ray reports errors that nobody looks at
            self._failed(index, error, version=request.version)
            return None
        if request.payloads:
            items = referenced(items, request.payloads)
        if failures.last_error is not None:
            failures.supervisor.delivered(index)
        name, sequence, left = self._names[index], self._sequence[index], len(items)
        if left < self.source.fragments:  # the source ended, or an item failed, which the next call reports
            self.source.lost(self.source.fragments - left)
        arrivals = []
        for payload, num_steps, version, episodes in items:
            if payload is END:
                self._over[index] = True
                self._keep_episodes(episodes)
                break
            left -= 1
            if self.stages:
                payload = self._through_stages(payload)
            if type(payload) not in self._right:
                self._check_item(payload, Envelope(None, name, sequence))
            if isinstance(version, int):
                envelope = Envelope(payload, name, sequence, version)
            else:  # of each learner's weights
                envelope = Envelope(payload, name, sequence, sum(version), versions=version)
            arrivals.append(Arrival(envelope, num_steps, index, not left, episodes))
            sequence += 1
        self._sequence[index] = sequence
        if not arrivals:
            return None
        if not arrivals[-1].last:  # the END came after it
            arrivals[-1] = arrivals[-1]._replace(last=True)
        if not self.waits_for_all:
            arrivals = self._mark(request, arrivals)
        self._arrived.extend(arrivals)
        return arrivals

    def _check_item(self, payload: Any, item: Envelope) -> None:
        """Checks an item, once for each type.

        Raises:
            PlanError: If it is not of the type that the worker, or the last operator beside it, declares.
        """
        if not self.by_reference:
            try:
                check_type(payload, self.inputs[0].item_type)
            except TypeError as error:
                raise failure(self.inputs[0].node.name, item, error) from error
        self._right.add(type(payload))

    def _through_stages(self, payload: Any) -> Any:
        """Counts an item at each operator beside its source that it reached."""
        absorbed = type(payload) is AbsorbedAt
        for stage in self.stages[: payload + 1] if absorbed else self.stages:
            stage.timer.items += 1
        return ABSORBED if absorbed else payload

    def _mark(self, request: Requested, arrivals: list[Arrival]) -> list[Arrival]:
        return arrivals

    def _deliver(self, arrival: Arrival) -> Envelope:
        """Delivers an item, and counts it."""
        self._absorb(arrival)
        self.timer.items += 1
        return arrival.envelope

    def _lag(self, envelope: Envelope) -> int:
        """The weight lag of an item; 0 if that is unknown."""
        version = envelope.weight_version
        return 0 if version == UNKNOWN_VERSION else self._channel.lag(version, envelope.versions)

    def _note_lag(self, envelope: Envelope) -> None:
        """Counts the weight lag of an item that leaves, if it is known and the item counts."""
        if envelope.weight_version != UNKNOWN_VERSION and self.source.counts:
            self._channel.note_lag(envelope.weight_version, envelope.versions)

    def _absorb(self, arrival: Arrival) -> None:
        """Counts the environment steps of an item."""
        source = self.source
        source.timer.items += 1
        source.count(self._counters, arrival.num_steps)
        if arrival.episodes:
            self._keep_episodes(arrival.episodes)

    def _keep_episodes(self, episodes: Sequence[Episode]) -> None:
        if episodes:
            self._context.episodes[self.source.group.key].extend(episodes)

    # -- failures -----------------------------------------------------------------------------------------------

    def _failed(self, index: int, error: Exception, asked: bool = True, version: float = math.inf) -> None:
        """Handles a failure of an actor as its rule says.

        Args:
            index: Its number.
            error: The error.
            asked: Whether it failed on a requested item.
            version: Of the weights that it was asked for it with.

        Raises:
            PlanError: If the plan is to stop, naming operator, actor and item, with the original error as its cause.
        """
        item = Envelope(None, self._names[index], self._sequence[index], self._channel.version)
        survived = self._failures.judge(error, item, version)
        if survived is None:
            return
        items = (self.source.fragments if survived.actor_lost else 1) if asked else 0
        self._counters.lose(self.source.name, items)
        self.source.lost(self.source.fragments if asked else 0)  # the whole call is lost
        self.source.expect_no_answer(index)
        self._sequence[index] += items
        if self._failures.note(index, survived):
            self._forget_all_of(index)
            self._failures.stop(index)

    def _forget_all_of(self, index: int) -> None:
        """Drops the requests and the items of an actor, all of which are lost."""
        purged = [request for request in self._requested if request.actor == index]
        purged_items = [arrival for arrival in self._arrived if arrival.actor == index]
        for request in purged:
            self._forget(request)
        self._arrived = deque(arrival for arrival in self._arrived if arrival.actor != index)
        items = len(purged) * self.source.fragments + len(purged_items)
        self._sequence[index] += len(purged) * self.source.fragments
        self._lose(items)

    def _lose(self, items: int) -> None:
        self._counters.lose(self.source.name, items)
        self.source.lost(items)

    def _replace_due(self) -> None:
        """Restarts actors whose delay is over, and asks those that are there for items."""
        failures = self._failures
        for index in self.source.take_dead():
            if not failures.stopped(index):
                self._failed(index, ActorLost("found dead by who gave it something"), asked=False)
        if failures.last_error is None:
            return
        for index, error in failures.supervisor.advance():
            if error is None:
                self.source.started(index)
                self._asked_of_new_actor(index)
            else:
                self._failed(index, error, asked=False)

    def _asked_of_new_actor(self, index: int) -> None:
        """Asks a restarted actor for the items that its predecessor owed."""

    def _check_alive(self) -> None:
        """Raises the last error if no actor is left that could work."""
        if self._failures.last_error is not None and not self._requested and not self._arrived:
            self._failures.check_alive(self._over)

    def _check_hanging(self) -> list[Call]:
        """Handles actors that do not answer as their rule says; returns calls that turned out to be done."""
        failures, now = self._failures, self._now()
        if now < failures.hangs_at:
            return []
        # the last look may be long ago: the driver was busy, or the look was left out
        unknown = [request.call for request in self._requested if id(request.call) not in self._ready]
        found = self._engine.wait(unknown, 0) if unknown else []
        self._ready.update(map(id, found))
        unanswered = [request for request in self._requested if id(request.call) not in self._ready]
        for request, error in failures.hanging(unanswered, now):
            if request in self._requested:  # a failure of its actor may have taken it away
                self._forget(request)
                self._failed(request.actor, error)
        failures.look_again(self._requested, now)
        return found

    def _not_ready(self) -> Pulled:
        """Remembers the calls that hold this node up in this step, and returns NOT_READY."""
        found = self._check_hanging()
        self._check_alive()
        # Waiting for a call that is done and held back would make the plan spin.
        ready = self._ready
        self._blocking = found + [request.call for request in self._requested if id(request.call) not in ready]
        if self._failures.last_error is not None:
            self._blocking += self._failures.supervisor.waits_on()
        self._blocked_in_step = self._context.turn.number
        return NOT_READY

    def waits_on(self) -> Iterator[Call]:
        """The calls that held it up in the last step; none if it was not asked or had an item."""
        return iter(self._blocking if self._blocked_in_step == self._context.turn.number else ())

    def wakes_at(self) -> float | None:
        """The time at which an actor is to be restarted, or counts as hanging."""
        if self._blocked_in_step != self._context.turn.number:
            return None
        failures = self._failures
        hangs_at = failures.hangs_at if self._requested else None
        if not failures.restarting():
            return hangs_at
        return min((at for at in (hangs_at, failures.supervisor.wakes_at()) if at is not None), default=None)

    def obstacle(self) -> str:
        """Items that have not arrived yet."""
        late = ", ".join(f"{self._names[request.actor]}#{self._sequence[request.actor]}" for request in self._requested)
        return f"waiting for {late}" if late else ""

    def progress(self) -> str:
        """Weight lags of its items."""
        lag = self._channel.gather_lag
        return f"lag {lag.mean:.1f} (at most {lag.maximum})" if lag.counts else ""

    # -- checkpoints --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Waits until all started calls are done, without receiving their items."""
        patience = min(1.0, self._failures.rule.timeout)
        while unknown := [request.call for request in self._requested if id(request.call) not in self._ready]:
            self._ready.update(map(id, self._engine.wait(unknown, patience)))
            self._check_hanging()

    def state_dict(self) -> dict[str, Any]:
        """Sequence numbers, sources that have ended, and items that were requested or made, and not delivered."""
        self.drain()
        requested, failed = self._answers()
        arrived = self._kept_arrivals()
        return {
            **state_of(self, type(self).state, self.name),
            "replaced": list(self._failures.supervisor.replaced),
            "arrived": arrived,
            "requested": requested,
            "failed": failed,
        }

    def _answers(self) -> tuple[list[Any], list[int]]:
        """The answers of calls that are done and not delivered, and the sources of those that failed.

        The gather detects these failures as if nothing had been saved; a resumed plan asks again.
        """
        kept: list[Any] = []
        failed: list[int] = []
        for request in self._requested:
            try:
                kept.append(encode(request, self.name))
            except CheckpointError:
                raise
            except Exception:
                failed.append(request.actor)
        return kept, failed

    def _kept_arrivals(self) -> list[Any]:
        """Items that have arrived. Items left at their actors and lost there are counted."""
        kept = []
        for arrival in list(self._arrived):
            try:
                kept.append(encode(arrival, self.name))
            except ActorLost:
                self._arrived.remove(arrival)
                self._lose(1)
                if arrival.last:
                    self._after_lost(arrival.actor)
        return kept

    def _after_lost(self, index: int) -> None:
        """Asks a source again whose last item is lost."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state; that of another number of workers is refused."""
        check_workers(len(state["sequence"]), len(self._sequence), self.name)
        load_state(self, type(self).state, state)
        self._failures.supervisor.replaced = [int(number) for number in state["replaced"]]
        now = self._now()
        self._requested = deque(request._replace(asked_at=now) for request in decode(state["requested"]))
        self._ready = {id(request.call) for request in self._requested}
        self._arrived = deque(decode(state["arrived"]))
        for index in state["failed"]:
            self.source.expect_no_answer(int(index))

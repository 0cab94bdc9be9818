"""Gathers: where items leave their sources and become one stream, in an order that is part of the algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

from rlweave.errors import ConfigError, PlanError
from rlweave.flow.context import Context
from rlweave.flow.envelope import ABSORBED, END, ItemReference, Pulled, RoundMark, merge
from rlweave.flow.gather import Gather
from rlweave.flow.item_types import fits, positive
from rlweave.flow.operator import Port
from rlweave.flow.plan_errors import does_not_fit, failure
from rlweave.flow.protocols import Batch
from rlweave.flow.workers import Arrival, Requested

WhenOld = Literal["drop", "wait"]


class GatherSync(Gather):
    """A barrier: one item per source (or one call's worth of them) in every round, in the order of the sources.

    The next round is requested only when the last item of this one has gone through the plan, so what the plan sends
    upstream meanwhile (weights) is seen by the whole next round. A source that is over leaves the rounds.

    So does one that is given up, after as many failures in a row as ``on_error`` allows: rounds have an item less
    from then on (the measure ``given_up`` counts them). Every item knows its round (``Envelope.round``), so
    ``batch_rounds()`` goes on to make lists of one round each. ``batch(n)`` and ``concat(min_steps)`` count items and
    steps, whichever round they are of.

    With a quorum, a round does not wait for all: once ``timeout`` seconds have passed since it was requested,
    ``quorum`` sources are enough. A late item joins the round in which it arrives, and is marked
    (``Envelope.rounds_late``); its source is asked again only after that.

    Args:
        upstream: A parallel stream.
        concat: Deliver each round as one item, its batches glued together.
        quorum: Sources that are enough after ``timeout``; None waits for all.
        timeout: Seconds that a round waits for all sources; 0 never waits for more than the quorum.
    """

    state = (*Gather.state, "_rounds", "_glued", "late_items", "_round")

    def __init__(
        self, upstream: Port, concat: bool = False, quorum: int | None = None, timeout: float | None = None
    ) -> None:
        if concat and not fits(upstream.item_type, Batch):
            raise does_not_fit(upstream.node.name, upstream.describe(), upstream.item_type, "gather_sync", Batch)
        super().__init__("gather_sync", upstream)
        if not self.source.in_rounds:
            raise PlanError(
                "samples of shards do not come in rounds: a shard that is not ready would hold up all others",
                where=f"operators {self.source.name!r} and 'gather_sync'",
                received="gather_sync()",
                fix="use gather_async()",
            )
        size = len(self.source.group)
        if (quorum is None) != (timeout is None) or (
            quorum is not None and timeout is not None and not (1 <= quorum <= size and timeout >= 0)
        ):
            raise ConfigError(
                "a barrier that does not wait for all needs a quorum and a timeout",
                where="gather_sync",
                received=f"quorum={quorum}, timeout={timeout}, {size} sources",
                fix=f"give both, as quorum={max(1, size - 1)}, timeout=1.0, or neither to wait for all",
            )
        self.concat, self.quorum, self.timeout = concat, quorum, timeout
        self.waits_for_all = timeout is None
        self.in_flight = size * self.source.fragments
        self.late_items = 0
        self._rounds = 0
        self._glued = 0
        self._open = False
        self._opened_at = 0.0
        self._round: deque[Arrival] = deque()

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the round, or the whole round as one item."""
        if not self._round:
            answer = self._collect()
            if answer is not None:
                return answer
        if not self.concat:
            return self._deliver(self._round.popleft())
        parts = [self._deliver(arrival) for arrival in self._round]
        self._round.clear()
        try:
            payload = parts[0].payload.concat([part.payload for part in parts])
        except Exception as error:
            raise failure(self.name, merge(parts, None, self.name, self._glued), error) from error
        self._glued += 1
        return merge(parts, payload, self.name, self._glued - 1)

    def _collect(self) -> Pulled | None:
        """Fills the round, or returns the signal that explains why it cannot be filled now."""
        failures = self._failures
        self._replace_due()
        if not self._open:
            self._check_alive()
            if not self.source.always_asked and not all(map(self.source.may_ask, self._live())):
                return self._not_ready()
            asked = {request.actor for request in self._requested} | {arrival.actor for arrival in self._arrived}
            for index in self._live():
                if index not in asked:
                    self._request(index, self._rounds)
            if not self._requested and not self._arrived and not failures.restarting():
                self.ended = True
                return END
            self._open, self._opened_at = True, self._now()
        while (request := self._first_done()) is not None:
            if self._take(request) is None and not self._over[request.actor] and not failures.stopped(request.actor):
                self._request(request.actor, self._rounds)  # its item was skipped: another one, for the same round
        self._check_alive()
        if (self._requested or failures.restarting()) and not self._enough():
            return self._not_ready()
        self._open = False
        self._round.extend(sorted(self._arrived, key=lambda arrival: arrival.actor))
        self._arrived.clear()
        self._rounds += 1
        self._round = self._marked(self._not_absorbed(self._round))
        for arrival in self._round:
            self._note_lag(arrival.envelope)
        if self._round:
            return None
        return ABSORBED if self._live() or self._requested or failures.restarting() else END

    def _marked(self, arrivals: Iterable[Arrival]) -> deque[Arrival]:
        """Items of the newest round; the last one is marked as such."""
        whole = list(arrivals)
        number, end = self._rounds - 1, len(whole) - 1
        return deque(
            arrival._replace(envelope=arrival.envelope._replace(round=RoundMark(self.name, number, place == end)))
            for place, arrival in enumerate(whole)
        )

    def _not_absorbed(self, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
        """Items that came through all operators at their source; the steps of the others are counted."""
        for arrival in arrivals:
            if arrival.envelope.payload is ABSORBED:
                self._absorb(arrival)
            else:
                yield arrival

    def _after_lost(self, index: int) -> None:
        if not self._over[index] and not self._failures.stopped(index):
            self._request(index, self._rounds)

    def _asked_of_new_actor(self, index: int) -> None:
        if self._open:
            self._request(index, self._rounds)

    def _mark(self, request: Requested, arrivals: list[Arrival]) -> list[Arrival]:
        """Marks items that were requested in an earlier round."""
        late = self._rounds - request.round
        if not late:
            return arrivals
        self.late_items += len(arrivals)
        return [arrival._replace(envelope=arrival.envelope._replace(rounds_late=late)) for arrival in arrivals]

    def _enough(self) -> bool:
        if self.quorum is None or self.timeout is None or self._now() < self._opened_at + self.timeout:
            return False
        return len({arrival.actor for arrival in self._arrived}) >= self.quorum

    def wakes_at(self) -> float | None:
        """As in the base class, and the time at which the quorum is enough."""
        base = super().wakes_at()
        if self.timeout is None or not self._open or self._now() >= self._opened_at + self.timeout:
            return base
        at = self._opened_at + self.timeout
        return at if base is None else min(base, at)

    def note(self) -> str:
        """Whether rounds are concatenated, and the quorum."""
        quorum = "" if self.quorum is None else f"quorum={self.quorum}, timeout={self.timeout:g}"
        return ", ".join(filter(None, ["one item per round" if self.concat else "", quorum]))

    def measures(self) -> dict[str, float]:
        """The numbers of late items, and of sources that were given up."""
        given_up = sum(self._failures.supervisor.given_up) if hasattr(self, "_failures") else 0
        measures: dict[str, float] = {} if self.quorum is None else {"late_items": self.late_items}
        return {**measures, "given_up": given_up} if given_up else measures

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, and the items of the round that were not delivered."""
        # a resumed plan has all sources again, and asks those that have no actor now
        whole = self._open and not any(map(self._failures.stopped, range(len(self._over))))
        return {**super().state_dict(), "open": whole}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        super().load_state_dict(state)
        self._open, self._opened_at = bool(state["open"]) and not state["failed"], self._now()


class GatherAsync(Gather):
    """Items as they come, ``num_async`` asked for ahead at every source.

    A source is asked for the next item only after the one it delivered has gone through the plan. So with
    ``num_async=1`` item i of a source is done before item i + 1 is begun (with several fragments per call: before the
    next call is begun).

    Args:
        upstream: A parallel stream.
        num_async: Calls per source that may be started and whose items are not delivered.
        max_lag: Greatest weight lag of an item, when it leaves here for the learner that is furthest ahead,
            and when a learner trains on it for that learner; None keeps all.
        when_old: ``"drop"`` drops older items and counts them. ``"wait"`` holds items of faster sources back
            if they would make an item under construction too old; those that are too old even so are dropped.
        by_reference: Whether items stay where they are made, and an `ItemReference` goes through the plan instead.
    """

    state = (*Gather.state, "held_back", "_holding")

    def __init__(
        self,
        upstream: Port,
        num_async: int = 1,
        max_lag: int | None = None,
        when_old: WhenOld = "drop",
        by_reference: bool = False,
    ) -> None:
        super().__init__("gather_async", upstream)
        self.by_reference = by_reference
        if by_reference:
            self.outputs = [Port(self, 0, ItemReference[upstream.item_type])]  # type: ignore[name-defined]
        self.num_async = self.calls_per_source = positive("num_async", num_async, "gather_async")
        if max_lag is not None and (isinstance(max_lag, bool) or not isinstance(max_lag, int) or max_lag < 0):
            raise ConfigError(
                "max_lag is a number of weight versions",
                where="gather_async",
                received=f"max_lag={max_lag!r}",
                fix="give a whole number, 0 for only the newest weights, or None for no bound",
            )
        if when_old not in get_args(WhenOld) or (when_old == "wait" and max_lag is None):
            raise ConfigError(
                "what to do with old items is 'drop' or 'wait', and needs a bound",
                where="gather_async",
                received=f"when_old={when_old!r}, max_lag={max_lag}",
                fix="give max_lag, the most weight versions that an item may be old",
            )
        self.max_lag, self.when_old = max_lag, when_old
        self.in_flight = num_async * len(self.source.group) * self.source.fragments
        self.held_back, self._holding = 0, False
        self._due = [index for _ in range(num_async) for index in range(len(self.source.group))]

    def start(self, context: Context) -> None:
        """Binds actors."""
        super().start(context)
        # this runs for every item: without a bound there is no check
        self._admits = None if self.when_old == "drop" or self.max_lag is None else self._admitted

    def pull(self, output: int = 0) -> Pulled:
        """The arrived item that was requested first."""
        source, failures = self.source, self._failures
        failed = failures.last_error is not None
        if failed or source.watched_by_others:
            self._replace_due()
            failed = failures.last_error is not None
        if self._due:
            due, self._due = self._due, []
            for index in due:
                if self._over[index] or (failed and failures.stopped(index)):
                    continue
                if source.always_asked or source.may_ask(index):
                    self._request(index)
                else:
                    self._due.append(index)
        arrived = self._arrived
        if not arrived:
            if not self._requested:
                self._check_alive()
                if not failures.restarting() and (not self._due or source.exhausted()):
                    self.ended = True
                    return END
            request = self._first_done(self._admits)
            if request is None:
                return self._not_ready()
            if self._take(request) is None:
                self._due.append(request.actor)
                return ABSORBED
        arrival = arrived.popleft()
        if arrival.last:
            self._due.append(arrival.actor)
        self._absorb(arrival)
        envelope = arrival.envelope
        if envelope.payload is ABSORBED:
            return ABSORBED
        self.timer.items += 1
        if self.max_lag is not None and self._lag(envelope) > self.max_lag:
            self._counters.drop(self.name)
            # an UpdateWeights behind this gather will not see this item
            self._channel.publish(arrival.actor)
            return ABSORBED
        self._note_lag(envelope)
        return envelope

    def _after_lost(self, index: int) -> None:
        self._due.append(index)

    def _asked_of_new_actor(self, index: int) -> None:
        self._due = [due for due in self._due if due != index] + [index] * self.num_async

    def _admitted(self, request: Requested) -> bool:
        """Whether delivering an item keeps every item under construction within the bound."""
        assert self.max_lag is not None
        lag = self._channel.lag
        oldest = max(lag(other.version, other.versions) for other in self._requested)
        admitted = lag(request.version, request.versions) == oldest or oldest < self.max_lag
        self.held_back += not admitted and not self._holding
        self._holding = not admitted
        return admitted

    def note(self) -> str:
        """Settings."""
        bound = "" if self.max_lag is None else f", max_lag={self.max_lag}, {self.when_old}"
        return f"num_async={self.num_async}{bound}{', by reference' if self.by_reference else ''}"

    def measures(self) -> dict[str, float]:
        """Number of items held back so that others do not get too old."""
        return {"held_back": self.held_back} if self.when_old == "wait" else {}

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, and the sources to be asked next, and the number of items held back."""
        state = super().state_dict()
        # a resumed plan has all sources again
        stopped = [index for index in range(len(self._over)) if self._failures.stopped(index)]
        due = [index for index in self._due if index not in stopped] + stopped * self.num_async
        return {**state, "due": due}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        super().load_state_dict(state)
        self._due = [int(index) for index in (*state["due"], *state["failed"])]

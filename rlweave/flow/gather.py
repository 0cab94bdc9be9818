"""Gathers: where items leave their sources and become one stream, in an order that is part of the algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.engine import Call
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled, merge
from rlweave.flow.item_state import decode, decode_envelopes, encode, encode_envelopes
from rlweave.flow.item_types import fits
from rlweave.flow.node import Node, Port, failure, wrong_type
from rlweave.flow.operators import positive
from rlweave.flow.protocols import Batch
from rlweave.flow.sources import ParForEach, RolloutSource
from rlweave.flow.workers import SourceFailure, SourceItem

if TYPE_CHECKING:
    from rlweave.flow.context import Context


class Requested(NamedTuple):
    """An item that was asked for: number of its source, its sequence number there, and the call that makes it."""

    actor: int
    sequence: int
    call: Call


class Delivery(NamedTuple):
    """An item that has arrived, and the environment steps it took."""

    envelope: Envelope
    num_steps: int


class Arrived:
    """The call of an item that came with a checkpoint: it is there already."""

    def __init__(self, item: SourceItem) -> None:
        self._item = item

    def result(self) -> SourceItem:
        """The item."""
        return self._item


class Gather(Node):
    """What both gathers do: ask sources for items, and take delivery of them."""

    def __init__(self, name: str, upstream: Port) -> None:
        super().__init__(name, [upstream])
        if not upstream.parallel:
            raise PlanError(
                f"{name}() needs a parallel stream",
                where=f"operators {upstream.node.name!r} and {name!r}",
                received=f"{upstream.describe()}, gathered already",
                fix=f"leave out {name}()",
            )
        self.stages: list[ParForEach] = []
        source: Node = upstream.node
        while isinstance(source, ParForEach):
            self.stages.insert(0, source)
            source = source.inputs[0].node
        assert isinstance(source, RolloutSource)
        self.source = source
        self.connect()
        self.outputs = [Port(self, 0, upstream.item_type)]
        self._requested: deque[Requested] = deque()
        self._sequence = [0] * len(source.group)
        self._over = [False] * len(source.group)
        self._blocking: list[Call] = []
        self._blocked_in_step = -1

    def prepare(self, context: Context) -> None:
        """Tells the actors what to do with each item before it leaves them."""
        context.stages[self.source.group.key] = [(stage.name, stage.operator) for stage in self.stages]

    def start(self, context: Context) -> None:
        """Binds actors and the way of weights to them."""
        self._now: Callable[[], float] = context.clock.now
        self._context = context
        self._engine = context.engine
        self._counters = context.counters
        self._actors = context.actors(self.source.group)
        self._channel = context.channel(self.source.group)
        self._names = [f"{self.source.name}/{index}" for index in range(len(self._actors))]
        for index, name in enumerate(self._names):
            context.name_source(name, self._channel, index)

    def _request(self, index: int) -> None:
        started = self._now()
        try:
            self._channel.deliver(index)
        except Exception as error:
            envelope = Envelope(None, self._names[index], self._sequence[index], self._channel.version)
            raise failure(f"weights for {self.source.name}", envelope, error) from error
        call = self._engine.call(self._actors[index], "next_item")
        self.source.timer.seconds += self._now() - started
        self._requested.append(Requested(index, self._sequence[index], call))
        self._sequence[index] += 1

    def _done(self) -> set[int]:
        """Identities of the requested calls that are done."""
        waiting = [request.call for request in self._requested if not isinstance(request.call, Arrived)]
        done = {id(call) for call in self._engine.wait(waiting, 0)} if waiting else set()
        return done | {id(request.call) for request in self._requested if isinstance(request.call, Arrived)}

    def _take(self, request: Requested) -> Delivery | None:
        """Takes delivery of an item; None if the source is over or the item was absorbed there."""
        name = self._names[request.actor]
        try:
            item: SourceItem = request.call.result()
        except SourceFailure as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            operator = self.source.name if error.stage == "sample" else error.stage
            raise failure(operator, Envelope(None, name, request.sequence, self._channel.version), cause) from cause
        except Exception as error:
            raise failure(self.source.name, Envelope(None, name, request.sequence), error) from error
        if item.payload is END:
            self._over[request.actor] = True
            return None
        self.source.timer.items += 1
        if item.payload is ABSORBED:
            self._counters.env_steps_sampled += item.num_steps
            return None
        self._channel.gather_lag.add(self._channel.version - item.weight_version)
        return Delivery(Envelope(item.payload, name, request.sequence, item.weight_version), item.num_steps)

    def _deliver(self, delivery: Delivery) -> Envelope:
        """Lets an item out, and counts it."""
        self._counters.env_steps_sampled += delivery.num_steps
        self.timer.items += 1
        return delivery.envelope

    def _not_ready(self, done: set[int]) -> Pulled:
        """Remembers which calls hold this node up in this step, and answers NOT_READY."""
        self._blocking = [request.call for request in self._requested if id(request.call) not in done]
        self._blocked_in_step = self._context.step_number
        return NOT_READY

    def waits_on(self) -> Iterator[Call]:
        """The items that held it up in the last step; none if it was not asked or had an item to give."""
        return iter(self._blocking if self._blocked_in_step == self._context.step_number else ())

    def obstacle(self) -> str:
        """Items that did not arrive yet."""
        late = ", ".join(f"{self._names[request.actor]}#{request.sequence}" for request in self._requested)
        return f"waiting for {late}" if late else ""

    def state_dict(self) -> dict[str, Any]:
        """Sequence numbers, sources that are over, and items that were made but not delivered."""
        requested = []
        for request in self._requested:
            item: SourceItem = request.call.result()
            over, absorbed = item.payload is END, item.payload is ABSORBED
            payload = None if over or absorbed else encode(item.payload, self.name)
            requested.append(
                {
                    "index": request.actor,
                    "sequence": request.sequence,
                    "payload": payload,
                    "signal": "end" if over else "absorbed" if absorbed else "",
                    "num_steps": item.num_steps,
                    "weight_version": item.weight_version,
                }
            )
        return {"sequence": list(self._sequence), "over": list(self._over), "requested": requested}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._sequence = [int(number) for number in state["sequence"]]
        self._over = [bool(over) for over in state["over"]]
        self._requested = deque()
        for kept in state["requested"]:
            signal = {"end": END, "absorbed": ABSORBED}.get(kept["signal"])
            payload = decode(kept["payload"]) if signal is None else signal
            item = SourceItem(payload, int(kept["num_steps"]), int(kept["weight_version"]))
            self._requested.append(Requested(int(kept["index"]), int(kept["sequence"]), Arrived(item)))


class GatherSync(Gather):
    """A barrier: one item per source in every round, delivered in the order of the sources.

    The next round is asked for only when the last item of this one has gone through the plan, so what the plan sends
    upstream meanwhile (weights) is seen by the whole next round. A source that is over leaves the rounds.

    Args:
        upstream: A parallel stream.
        concat: Deliver each round as one item, its batches glued together.
    """

    def __init__(self, upstream: Port, concat: bool = False) -> None:
        if concat and not fits(upstream.item_type, Batch):
            raise wrong_type(upstream, "gather_sync", Batch)
        super().__init__("gather_sync", upstream)
        self.concat = concat
        self.in_flight = len(self.source.group)
        self._round: deque[Delivery] = deque()
        self._rounds = 0

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the round, or the whole round as one item."""
        if not self._round:
            answer = self._collect()
            if answer is not None:
                return answer
        if not self.concat:
            return self._deliver(self._round.popleft())
        parts = [self._deliver(delivery) for delivery in self._round]
        self._round.clear()
        try:
            payload = parts[0].payload.concat([part.payload for part in parts])
        except Exception as error:
            raise failure(self.name, merge(parts, None, self.name, self._rounds), error) from error
        self._rounds += 1
        return merge(parts, payload, self.name, self._rounds - 1)

    def _collect(self) -> Pulled | None:
        """Fills the round, or says why it cannot be filled now."""
        if not self._requested:
            for index, over in enumerate(self._over):
                if not over:
                    self._request(index)
            if not self._requested:
                self.ended = True
                return END
        done = self._done()
        if len(done) < len(self._requested):
            return self._not_ready(done)
        while self._requested:
            delivery = self._take(self._requested.popleft())
            if delivery is not None:
                self._round.append(delivery)
        if self._round:
            return None
        return END if all(self._over) else ABSORBED

    def note(self) -> str:
        """Whether rounds are glued together."""
        return "one item per round" if self.concat else ""

    def state_dict(self) -> dict[str, Any]:
        """Also the items of the round that were not delivered."""
        envelopes = encode_envelopes((delivery.envelope for delivery in self._round), self.name)
        steps = [delivery.num_steps for delivery in self._round]
        return {**super().state_dict(), "round": envelopes, "round_steps": steps, "rounds": self._rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        super().load_state_dict(state)
        envelopes = decode_envelopes(state["round"])
        self._round = deque(map(Delivery, envelopes, map(int, state["round_steps"])))
        self._rounds = int(state["rounds"])


class GatherAsync(Gather):
    """Items as they come, ``num_async`` asked for ahead at every source.

    A source is asked for another item only after the one it delivered has gone through the plan. So with
    ``num_async=1`` item i of a source is done before item i + 1 is begun.

    Args:
        upstream: A parallel stream.
        num_async: Items per source that may be asked for and not delivered.
        max_lag: Items older than this many weight versions are dropped and counted; None keeps all.
    """

    def __init__(self, upstream: Port, num_async: int = 1, max_lag: int | None = None) -> None:
        super().__init__("gather_async", upstream)
        self.num_async = positive("num_async", num_async, "gather_async")
        self.max_lag = max_lag
        self.in_flight = num_async * len(self.source.group)
        self._due = [index for _ in range(num_async) for index in range(len(self.source.group))]

    def pull(self, output: int = 0) -> Pulled:
        """The item that was asked for first among those that have arrived."""
        for index in self._due:
            if not self._over[index]:
                self._request(index)
        self._due = []
        if not self._requested:
            self.ended = True
            return END
        done = self._done()
        request = next((request for request in self._requested if id(request.call) in done), None)
        if request is None:
            return self._not_ready(done)
        self._requested.remove(request)
        delivery = self._take(request)
        self._due = [request.actor]
        if delivery is None:
            return ABSORBED
        envelope = self._deliver(delivery)
        if self.max_lag is not None and self._channel.version - envelope.weight_version > self.max_lag:
            self._counters.drop(self.name)
            return ABSORBED
        return envelope

    def note(self) -> str:
        """Settings."""
        bound = "" if self.max_lag is None else f", max_lag={self.max_lag}"
        return f"num_async={self.num_async}{bound}"

    def state_dict(self) -> dict[str, Any]:
        """Also the sources that are to be asked next."""
        return {**super().state_dict(), "due": list(self._due)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        super().load_state_dict(state)
        self._due = [int(index) for index in state["due"]]

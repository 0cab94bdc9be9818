"""Nodes that take one stream and give one stream: the host of operators, and the one that takes lists apart."""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rlweave.errors import PlanError
from rlweave.flow.engine import ActorLost, Call, LocalCall
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled, Signal
from rlweave.flow.failure_rule import FailureRule
from rlweave.flow.item_state import as_numpy, decode, decode_envelopes, encode, encode_envelopes
from rlweave.flow.item_types import check_type, fits
from rlweave.flow.learner_record import LearnerRebirth
from rlweave.flow.node import Node, Port, failure, gather_missing, wrong_type
from rlweave.flow.operators import Operator

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.plan_graph import PlanGraph


def check_input(producer: Port, consumer: str, takes: Any = Any) -> None:
    """Checks that items have been gathered, and that they fit.

    Raises:
        PlanError: Naming both operators and their types.
    """
    if producer.parallel:
        raise gather_missing(producer, consumer)
    if not fits(producer.item_type, takes):
        raise wrong_type(producer, consumer, takes)


def claim(operator: Operator, node: Node) -> None:
    """Makes an operator object part of one node only: its buffers and counters belong to one stream.

    Raises:
        PlanError: If it has a place in a plan already.
    """
    owner: Node | None = getattr(operator, "_node", None)
    if owner is not None:
        raise PlanError(
            f"the operator object {owner.name!r} is used twice",
            where=f"operators {owner.name!r} and {node.name!r}",
            received=f"one {type(operator).__name__} object at two places",
            fix="make a second one, or split() the stream behind it",
        )
    operator._node = node  # type: ignore[attr-defined]


class ForEach(Node):
    """Puts every item through an operator."""

    on_error_choices: tuple[str, ...] = ("stop", "skip")

    def __init__(self, upstream: Port, operator: Operator) -> None:
        super().__init__(operator.default_name(), [upstream])
        self.operator = operator
        self.takes = operator.signature().takes
        check_input(upstream, self.name, self.takes)
        operator.check(self)
        claim(operator, self)
        self.connect()
        self.outputs = [Port(self, 0, operator.produced(upstream.item_type))]
        self.gathers_up = operator.merges
        self._gives = operator.signature().gives
        checked = self._gives is not Any and not isinstance(self._gives, TypeVar)
        self._right: set[type] | None = {Signal} if checked else None
        """Types that results may have, as far as they were seen; None if nothing is said about them."""
        self._flushed: deque[Envelope] = deque()
        self._failures_in_a_row = 0

    def check(self, graph: PlanGraph) -> None:
        """What the operator itself finds wrong."""
        self.operator.check_plan(self, graph)

    def start(self, context: Context) -> None:
        """Binds what every item needs."""
        self._counters = context.counters
        self._upstream = self.puller(self.inputs[0])
        self._now: Callable[[], float] = context.clock.now
        self._process = self.operator.process
        self.operator.add_metrics = partial(context.metrics.add, self.name)
        self.operator.start(context, self.name)
        if self.operator.gate is not None:
            self.gates.append(self.operator.gate)

    def pull(self, output: int = 0) -> Pulled:
        """One item from upstream, transformed."""
        if self.gates and not self.gates_open():
            return NOT_READY
        item = self._upstream()
        if isinstance(item, Signal):
            return self._at_end() if item is END else item
        started = self._now()
        try:
            result = self._process(item)
            if self._right is not None and type(getattr(result, "payload", result)) not in self._right:
                self._check_type(result)
        except Exception as error:
            return self._skipped(item, error)
        self._failures_in_a_row = 0
        timer = self.timer
        timer.items += 1
        timer.seconds += self._now() - started
        return result

    def _check_type(self, result: Pulled) -> None:
        """Checks what came out, once for each type.

        Raises:
            TypeError: If the operator's annotation says something else.
        """
        assert isinstance(result, Envelope)
        assert self._right is not None
        check_type(result.payload, self._gives)
        self._right.add(type(result.payload))

    def _skipped(self, item: Envelope, error: Exception) -> Pulled:
        """Leaves an item out that the operator failed on, if that is the rule, and counts it."""
        self._failures_in_a_row += 1
        if (
            self.failure_rule is None
            or self.failure_rule.on_error == "stop"
            or self._failures_in_a_row >= self.failure_rule.attempts
        ):
            raise failure(self.name, item, error) from error
        self._counters.fail(self.name)
        return ABSORBED

    def _at_end(self) -> Pulled:
        if not self.ended:
            self.ended = True
            try:
                self._flushed.extend(self.operator.flush())
            except Exception as error:
                raise failure(self.name, Envelope(None, "end of stream", self.timer.items), error) from error
        return self._flushed.popleft() if self._flushed else END

    def waits_on(self) -> Iterator[Call]:
        """What the operator waits for."""
        return self.operator.waits_on()

    def obstacle(self) -> str:
        """A closed gate."""
        if self.operator.gate is not None and not self.operator.gate():
            return "the actors that it gives items to take no more now"
        return "" if self.gates_open() else "held back by the rate limiter until more samples were trained on"

    def note(self) -> str:
        """The operator's settings."""
        rule = "" if self.failure_rule is None else self.failure_rule.note()
        return ", ".join(filter(None, [self.operator.note(), rule]))

    def state_dict(self) -> dict[str, Any]:
        """The operator's state, and what it flushed that has not come out yet."""
        return {"operator": self.operator.state_dict(), "flushed": encode_envelopes(self._flushed, self.name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gives the operator its state."""
        self.operator.load_state_dict(state["operator"])
        self._flushed = deque(decode_envelopes(state["flushed"]))


class ForEachAtActor(ForEach):
    """Puts every item through an operator whose work is done in an actor: nobody waits for it but who wants its item.

    One item is worked on at a time. A queue in front of it keeps the branches before it moving meanwhile. With the
    failure rule ``"replace"``, a learner that fails, dies or hangs is made anew from the last snapshot of its state;
    the item that it failed on and the updates since then are lost, and counted.
    """

    on_error_choices = ("stop", "replace")
    place = "learner"

    def __init__(self, upstream: Port, operator: Operator) -> None:
        super().__init__(upstream, operator)
        self._working: tuple[Envelope, Call] | None = None
        self._finished: deque[Envelope] = deque()

    def check(self, graph: PlanGraph) -> None:
        """Who is to be made anew needs a state to begin from."""
        super().check(graph)
        if self.failure_rule is not None and self.failure_rule.on_error == "replace":
            assert self.operator.learner_actor is not None
            self.operator.learner_actor.check_restorable(self.name)

    def start(self, context: Context) -> None:
        """Binds the engine."""
        super().start(context)
        self._engine, self._context = context.engine, context
        self._rule = self.failure_rule or FailureRule()
        self._timeout = self._rule.timeout
        self._started_at = 0.0
        self._blocked_in_step = -1
        assert self.operator.learner_actor is not None
        self._record = context.learner(self.operator.learner_actor)
        self._rebirth = LearnerRebirth(
            self._record, self._rule, context.engine, context.clock, context.counters, self.name
        )
        if self._rule.on_error == "replace":
            self._record.protect()

    def pull(self, output: int = 0) -> Pulled:
        """An item that was worked on."""
        if self._finished:
            return self._finished.popleft()
        if self._working is None:
            if (self._record.lost or self._rebirth.going_on) and not self._made_anew():
                self._blocked_in_step = self._context.step_number
                return NOT_READY
            if self.gates and not self.gates_open():
                return NOT_READY
            item = self._upstream()
            if isinstance(item, Signal):
                return self._at_end() if item is END else item
            if not self.operator.admits(item):
                self.timer.items += 1
                return ABSORBED
            self._started_at = self._now()
            self._working = item, self.operator.begin(item)
        return self._finish()

    def _finish(self) -> Pulled:
        assert self._working is not None
        item, call = self._working
        if not self._engine.wait([call], 0):
            if self._now() - self._started_at > self._timeout:
                hanging = TimeoutError(f"the learner did not answer for {self._timeout:g} seconds")
                return self._failed(item, hanging)
            self._blocked_in_step = self._context.step_number
            return NOT_READY
        try:
            answer = call.result()
        except Exception as error:
            return self._failed(item, error)
        self._working = None
        try:
            result = self.operator.finish(item, answer)
        except Exception as error:
            raise failure(self.name, item, error) from error
        self._rebirth.succeeded()
        self.timer.items += 1
        self.timer.seconds += self._now() - self._started_at
        return result

    def _failed(self, item: Envelope, error: Exception) -> Pulled:
        """Has the learner made anew, if that is the rule; the item is lost."""
        self._working = None
        if self._rule.on_error == "stop" or not self._rebirth.begin(error):
            raise failure(self.name, item, error) from error
        self._counters.lose(self.name, 1)
        return ABSORBED

    def _made_anew(self) -> bool:
        """Goes on with replacing the learner; whether it is there now."""
        nothing = Envelope(None, self.name, self.timer.items)
        try:
            if not self._rebirth.going_on:  # found dead by who asked it for something
                found = ActorLost("it does not answer any more")
                if not self._rebirth.begin(found):
                    raise failure(self.name, nothing, found) from found
            there = self._rebirth.advance()
        except PlanError:
            raise
        except Exception as error:
            if not self._rebirth.begin(error):
                raise failure(self.name, nothing, error) from error
            return False
        if there:
            for channel in self._context.channels():
                if self._record in channel.learners:
                    channel.resend()
        return there

    def measures(self) -> dict[str, float]:
        """How long it took to replace the learner, the last time that it was."""
        seconds = self._rebirth.last_seconds if hasattr(self, "_rebirth") else 0.0
        return {"recovery_seconds": seconds} if seconds else {}

    def waits_on(self) -> Iterator[Call]:
        """The work at hand, or the learner that is being made."""
        if self._blocked_in_step == self._context.step_number:
            if self._working is not None:
                yield self._working[1]
            yield from self._rebirth.waits_on()

    def wakes_at(self) -> float | None:
        """When the learner counts as hanging, or is to be made anew."""
        if self._working is not None:
            return self._started_at + self._timeout
        if self._record.lost and not self._rebirth.going_on:
            return self._now()  # others found it dead in this very step
        return self._rebirth.wakes_at()

    def drain(self) -> None:
        """Waits until the work at hand is done, and takes nothing of it; has a lost learner back."""
        while self._rebirth.going_on or self._record.lost or not self._is_done():
            if self._working is None:
                if not self._made_anew():
                    self._rebirth.wait()
                continue
            item = self._finish()
            if isinstance(item, Envelope):
                self._finished.append(item)
            elif item is NOT_READY and self._working is not None:
                self._engine.wait([self._working[1]], 1.0)

    def _is_done(self) -> bool:
        """Whether nothing is worked on that has not succeeded."""
        if self._working is None:
            return True
        call = self._working[1]
        if not self._engine.wait([call], 0):
            return False
        try:
            call.result()
        except Exception:
            return False
        return True

    def placement(self) -> str:
        """In an actor."""
        return "1 actor"

    def state_dict(self) -> dict[str, Any]:
        """Also what was finished and did not come out yet, and the work that is done and was not taken delivery of."""
        working = None
        if self._working is not None:
            item, call = self._working
            answer = {name: as_numpy(value) for name, value in call.result().items()}
            working = {"item": encode_envelopes([item], self.name), "answer": encode(answer, self.name)}
        finished = encode_envelopes(self._finished, self.name)
        return {**super().state_dict(), "finished": finished, "working": working}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        super().load_state_dict(state)
        self._finished = deque(decode_envelopes(state["finished"]))
        working = state.get("working")
        if working is not None:
            (item,), answer = decode_envelopes(working["item"]), decode(working["answer"])
            if self._engine.in_process:
                self._working, self._started_at = (item, LocalCall(answer, None)), self._now()
            else:  # where nothing is repeated exactly, it is taken delivery of at once
                result = self.operator.finish(item, answer)
                self._finished.extend([result] if isinstance(result, Envelope) else [])
        self._record.keep_snapshot()


class Flatten(Node):
    """Takes lists apart: each element becomes an item with its list's source and number."""

    def __init__(self, upstream: Port) -> None:
        super().__init__("flatten", [upstream])
        self.takes = list
        check_input(upstream, self.name, self.takes)
        self.connect()
        arguments = typing.get_args(upstream.item_type)
        self.outputs = [Port(self, 0, arguments[0] if arguments else Any)]
        self._waiting: deque[Envelope] = deque()

    def start(self, context: Context) -> None:
        """Binds its upstream."""
        self._upstream = self.puller(self.inputs[0])

    def pull(self, output: int = 0) -> Pulled:
        """The next element."""
        if not self._waiting:
            item = self._upstream()
            if isinstance(item, Signal):
                self.ended = item is END
                return item
            self._waiting.extend(item.carrying(element) for element in item.payload)
            self.timer.items += 1
        return self._waiting.popleft() if self._waiting else ABSORBED

    def state_dict(self) -> dict[str, Any]:
        """Elements that have not come out yet."""
        return {"waiting": encode_envelopes(self._waiting, self.name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._waiting = deque(decode_envelopes(state["waiting"]))

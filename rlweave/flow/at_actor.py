"""Learners in actors: how an operator calls one, and restarts it from a snapshot of its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlweave.errors import PlanError
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.engine import ActorLost, ArgumentFailed, Call, LocalCall
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled, Signal, argument_of
from rlweave.flow.plan_errors import failure
from rlweave.flow.supervision import FailureRule, Supervisor

if TYPE_CHECKING:
    from rlweave.flow.training import LearnerOperator


class CallsLearner(ABC):
    """Executes the operator of a learner that lives in an actor, and restarts that where the rule says so.

    With ``on_error("replace")``, a learner that fails, dies or hangs is restarted from the last snapshot of its state;
    what it was working on and the updates since that snapshot are lost, and counted.

    Args:
        operator: The operator to execute.
        context: Of the plan.
    """

    def __init__(self, operator: LearnerOperator, context: Context) -> None:
        self._operator, self._context, self._engine, self._now = operator, context, context.engine, context.clock.now
        self._rule = operator.failure_rule or FailureRule()
        self._record = record = context.learner(operator.learner)
        self._supervisor = Supervisor(
            1,
            self._rule,
            context,
            operator.name,
            lambda _: record.restart(operator.name),
        )
        if self._rule.on_error == "replace":
            record.protect()
        self.recovery_seconds = 0.0
        """Duration of the last restart, from the detection of the failure until the learner works again."""
        self._noticed_at = 0.0
        self._blocked_in_step = -1
        self._successes = 0

    @abstractmethod
    def pull(self, output: int = 0) -> Pulled:
        """The operator's next item."""

    @abstractmethod
    def drain(self) -> None:
        """Waits until no call is under way, and until a lost learner is restarted."""

    def waits_on(self) -> Iterator[Call]:
        """The calls that held the operator up in this step, or the restart of the learner."""
        if self._blocked_in_step == self._context.turn.number:
            yield from self._awaited()
            yield from self._supervisor.waits_on()

    @abstractmethod
    def _awaited(self) -> Iterator[Call]:
        """Calls of the learner that it waits for."""

    def wakes_at(self) -> float | None:
        """When the learner counts as hanging, or is to be restarted."""
        hangs_at = self._hangs_at()
        if hangs_at is not None:
            return hangs_at
        if self._record.lost and not self._supervisor.restarting():
            return self._now()  # another operator found it dead in this very step
        return self._supervisor.wakes_at()

    @abstractmethod
    def _hangs_at(self) -> float | None:
        """When the learner counts as hanging; None where no call is under way."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; no call is under way that is not done."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""

    # -- restarts -----------------------------------------------------------------------------------------------

    def _succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self._record.save_every:  # it is done, and cannot be lost any more
            self._supervisor.delivered(0)

    def _stop(self, item: Envelope, error: Exception) -> None:
        """Plans the restart of a learner that failed, or fails with its error after too many failures in a row."""
        self._successes = 0
        self._record.lost = True
        if self._supervisor.failed(0):
            raise failure(self._operator.name, item, error) from error
        self._context.counters.fail(self._operator.name)
        self._noticed_at = self._now()
        self._supervisor.stop(0)

    def _is_down(self) -> bool:
        return self._record.lost or self._supervisor.restarting()

    def _restarted(self) -> bool:
        """Continues the restart of the learner; returns whether it works again."""
        nothing = Envelope(None, self._operator.name, self._operator.timer.items)
        if not self._supervisor.restarting():  # another operator's call found it dead
            self._stop(nothing, ActorLost("it does not answer any more"))
        for _, error in self._supervisor.advance():
            if error is None:
                self._go_on()
                return True
            if isinstance(error, ArgumentFailed):  # that snapshot was lost with the actor; the one before it may not be
                self._record.drop_snapshot()
                self._supervisor.restart(0)
            elif isinstance(error, PlanError):
                raise error
            else:
                self._stop(nothing, error)
        return False

    def _go_on(self) -> None:
        self._context.counters.lose_updates(self._operator.name, self._record.restored())
        self.recovery_seconds = self._now() - self._noticed_at
        for channel in self._context.channels():
            if self._record in channel.learners:
                channel.resend()


class AtActor(CallsLearner):
    """Only the consumer of its items waits for the learner.

    One item is trained on at a time; a queue in front of it lets the branches before it go on meanwhile.

    Args:
        operator: The operator to execute.
        context: Of the plan.
    """

    def __init__(self, operator: LearnerOperator, context: Context) -> None:
        super().__init__(operator, context)
        self.working: tuple[Envelope, Call] | None = None
        """The current item, and the call that trains on it."""
        self.finished: deque[Envelope] = deque()
        """Items that were trained on and have not come out yet."""
        self._started_at = 0.0

    def pull(self, output: int = 0) -> Pulled:
        """The next item that was trained on."""
        operator = self._operator
        if self.finished:
            return self.finished.popleft()
        if self.working is None:
            if self._is_down() and not self._restarted():
                self._blocked_in_step = self._context.turn.number
                return NOT_READY
            if operator.gates and not operator.gates_open():
                return NOT_READY
            item = operator.take()
            if isinstance(item, Signal):
                return operator.at_end() if item is END else item
            if not operator.admits(item):
                operator.timer.items += 1
                return ABSORBED
            self._started_at = self._now()
            self._record.busy = True
            call = self._engine.call(self._record.actor, operator.method, argument_of(item.payload))
            self.working = item, call
            result = self._finish()
            # it has moved: what stands before it has room now, which the scheduler fills before it waits
            return ABSORBED if result is NOT_READY else result
        return self._finish()

    def _finish(self) -> Pulled:
        assert self.working is not None
        item, call = self.working
        if not self._engine.wait([call], 0):
            if self._now() - self._started_at > self._rule.timeout:
                hanging = TimeoutError(f"the learner did not answer for {self._rule.timeout:g} seconds")
                return self._failed(item, hanging)
            self._blocked_in_step = self._context.turn.number
            return NOT_READY
        try:
            answer = call.result()
        except ArgumentFailed:  # the item was lost with the machine of its worker, and the learner is well
            self.working = None
            self._context.counters.lose(self._operator.name, 1)
            return ABSORBED
        except Exception as error:
            return self._failed(item, error)
        self.working = None
        try:
            result = self._operator.finish(item, answer)
        except Exception as error:
            raise failure(self._operator.name, item, error) from error
        self._succeeded()
        self._operator.timer.items += 1
        self._operator.timer.seconds += self._now() - self._started_at
        return result

    def _failed(self, item: Envelope, error: Exception) -> Pulled:
        """Restarts the learner, if that is the rule; the item is lost."""
        self.working = None
        if self._rule.on_error == "stop":
            raise failure(self._operator.name, item, error) from error
        self._stop(item, error)
        self._context.counters.lose(self._operator.name, 1)
        return ABSORBED

    def _awaited(self) -> Iterator[Call]:
        if self.working is not None:
            yield self.working[1]

    def _hangs_at(self) -> float | None:
        return None if self.working is None else self._started_at + self._rule.timeout

    def drain(self) -> None:
        """Waits until the current call is done, without consuming its result, and until a lost learner is restarted."""
        while self._is_down() or not self._is_done():
            if self.working is None:
                if not self._restarted():
                    self._supervisor.wait()
                continue
            item = self._finish()
            if isinstance(item, Envelope):
                self.finished.append(item)
            elif item is NOT_READY and self.working is not None:
                self._engine.wait([self.working[1]], 1.0)

    def _is_done(self) -> bool:
        """Whether no call is under way or failed."""
        if self.working is None:
            return True
        call = self.working[1]
        if not self._engine.wait([call], 0):
            return False
        try:
            call.result()
        except Exception:
            return False
        return True

    def state_dict(self) -> dict[str, Any]:
        """Finished items that have not come out yet, and the call that is done and not consumed."""
        working = None if self.working is None else (self.working[0], dict(self.working[1].result()))
        return {"finished": encode(self.finished, self._operator.name), "working": encode(working, self._operator.name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.finished = decode(state["finished"])
        if (working := decode(state["working"])) is not None:
            item, answer = working
            if self._engine.in_process:
                self.working, self._started_at = (item, LocalCall(answer, None)), self._now()
            else:  # on other engines the order of events is not repeated, so it is consumed at once
                self.finished.append(self._operator.finish(item, answer))
        self._record.keep_snapshot()

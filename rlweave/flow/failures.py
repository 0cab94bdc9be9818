"""What becomes of a gather's failures: which the plan goes on after, and which actors are there, made anew or gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.arrivals import Requested
from rlweave.flow.calls import ANSWER_SECONDS
from rlweave.flow.engine import ActorLost, ArgumentFailed, Call
from rlweave.flow.envelope import Envelope
from rlweave.flow.failure_rule import FailureRule, Hanging, Supervisor
from rlweave.flow.node import failure
from rlweave.flow.sources import ParForEach, RolloutSource
from rlweave.flow.workers import origin_of

if TYPE_CHECKING:
    from rlweave.flow.context import Context


class Survived(NamedTuple):
    """A failure that the plan goes on after.

    Attributes:
        error: Names operator, actor and item; its cause is the original error.
        skipped: Whether the actor goes on, and only its item is left out.
        actor_lost: Whether the actor is dead or hangs, and with it all that it had made of its call.
    """

    error: PlanError
    skipped: bool
    actor_lost: bool


class Failures:
    """The failures of the actors of a source, for the gather that asks them.

    The gather has every error judged (`judge`), and forgets what it held of the actor where that one is not to go on
    (`note`, then `bury`). It asks who can be asked (`buried`), and who is there anew (`replace_due`).

    Args:
        source: Whose actors they are.
        stages: The operators that run beside them.
        context: Of the plan.
    """

    def __init__(self, source: RolloutSource, stages: Sequence[ParForEach], context: Context) -> None:
        self._source, self._context = source, context
        self._now = context.clock.now
        self._channel = context.channel(source.group)
        self.rule = source.failure_rule or FailureRule()
        self._rules = {stage.name: stage.failure_rule or self.rule for stage in stages}
        self.supervisor = Supervisor(len(source.group), self.rule)
        self.last_error: PlanError | None = None
        """The newest failure that the plan went on after. Without one, nobody is buried or being replaced."""
        self._births: dict[int, tuple[Call, float]] = {}
        """New actors that are being made: a call that is done when they are there, and since when."""
        self.heard_of = [0.0] * len(source.group)
        """When each actor delivered last."""
        self.hangs_at = 0.0
        """Before this time nobody counts as hanging."""

    # -- what the rules say ----------------------------------------------------------------------------------

    def judge(self, error: Exception, item: Envelope, version: float) -> Survived | None:
        """Finds out what the rule says about an actor that failed, and counts it.

        Args:
            error: What came of it.
            item: What it was to make.
            version: Of the weights that it was asked for it with.

        Returns:
            What the plan goes on after; None if nothing was made and nothing is lost, because there were no weights.

        Raises:
            PlanError: If the plan is to stop, naming operator, actor and item, with the original error as its cause.
        """
        stage, cause = origin_of(error)
        source = self._source.name
        operator = {"sample": source, "set_weights": f"weights for {source}"}.get(stage, stage)
        rule = self._rules.get(stage, self.rule)
        if isinstance(error, ArgumentFailed):  # weights come from a learner's actor
            if self._channel.awaits_learner(version):
                return None
            rule = FailureRule()
        actor_lost = isinstance(error, ActorLost | Hanging)
        if rule.on_error == "stop" or (actor_lost and rule.on_error == "skip"):
            raise failure(operator, item, cause) from cause
        self._context.counters.fail(operator)
        survived = failure(operator, item, cause)
        survived.__cause__ = cause
        return Survived(survived, rule.on_error == "skip", actor_lost)

    def note(self, index: int, survived: Survived) -> bool:
        """Notes a failure of an actor; whether the actor is to be buried.

        Raises:
            PlanError: If the rule is to skip, and too many were skipped in a row.
        """
        self.last_error = survived.error
        too_many = self.supervisor.failed(index)
        if survived.skipped and too_many:
            raise survived.error from survived.error.__cause__
        return not survived.skipped

    def check_alive(self, over: Sequence[bool]) -> None:
        """Raises the last error when no actor is left that could work.

        Args:
            over: Which of them have come to their end.

        Raises:
            PlanError: If all others were given up, and one was.
        """
        if not self.supervisor.gave_up:
            return
        given_up = self.supervisor.given_up
        if all(gone or ended for gone, ended in zip(given_up, over, strict=True)):
            raise PlanError(
                f"all actors of {self._source.name!r} are gone",
                where=f"operator {self._source.name!r}",
                received=f"{sum(given_up)} given up after {self.rule.attempts} failures in a row each",
                fix="see its cause, the last failure; raise attempts in on_error() if it would have passed",
            ) from self.last_error

    # -- actors that are made anew ------------------------------------------------------------------------------

    def buried(self, index: int) -> bool:
        """Whether an actor cannot be asked: it is given up, or its successor is not there yet."""
        if self.last_error is None:
            return False
        return self.supervisor.given_up[index] or self.supervisor.waiting(index) or index in self._births

    def being_replaced(self) -> bool:
        """Whether any actor is to come."""
        return self.last_error is not None and (self.supervisor.wakes_at is not None or bool(self._births))

    def bury(self, index: int) -> None:
        """Ends an actor, and plans its replacement or gives it up."""
        self._context.bury(self._source.group, index)
        self.supervisor.bury(index, self._now())
        self._source.buried(index)

    def replace_due(self) -> Iterator[tuple[int, Exception | None]]:
        """Makes the actors anew whose time has come.

        Yields:
            Each one that is there now, with None, or that could not be made, with the error. Who takes an error has it
            judged before he asks for the next one.
        """
        if not self._births and self.supervisor.wakes_at is None:
            return
        lacking = self._channel.lacks_learner()  # who were made now would act on weights that nobody trained
        for index in [] if lacking else self.supervisor.take_due(self._now()):
            self._context.counters.replace(self._source.name)
            try:
                born = self._context.replace_actor(self._source.group, index, self.supervisor.replaced[index])
            except Exception as error:  # in this process, factories fail at once
                yield index, error
            else:
                self._births[index] = born, self._now()
        if not self._births:
            return
        there = set(map(id, self._context.engine.wait([born for born, _ in self._births.values()], 0)))
        for index, (born, began) in list(self._births.items()):
            if id(born) not in there and self._now() - began <= ANSWER_SECONDS:
                continue
            if id(born) in there and self._channel.lacks_learner(look=True):
                continue  # its weights may have died on their way to it; it gets the next ones with its first item
            del self._births[index]
            try:
                if id(born) not in there:
                    raise Hanging(f"was not made within {ANSWER_SECONDS:g} seconds")
                born.result()
            except Exception as error:
                yield index, error
            else:
                self._context.born(self._source.group, index)
                self._source.born(index)
                yield index, None

    def births(self) -> list[Call]:
        """Calls that are done when new actors are there; none while these could not be used, for want of a learner."""
        return [] if self._channel.lacks_learner() else [born for born, _ in self._births.values()]

    def births_wake_at(self) -> float | None:
        """When an actor is to be made anew, or has taken too long to make."""
        if self._channel.lacks_learner():
            return None  # the learner is waited for, by who trains it
        times = [began + ANSWER_SECONDS for _, began in self._births.values()]
        times += [] if self.supervisor.wakes_at is None else [self.supervisor.wakes_at]
        return min(times, default=None)

    # -- actors that do not answer ------------------------------------------------------------------------------

    def hanging(self, unanswered: Sequence[Requested], now: float) -> list[tuple[Requested, Hanging]]:
        """Those requests whose actors have not answered for too long."""
        # a learner that hangs keeps those waiting who wait for its weights: it is to be found out first
        patience = self.rule.timeout * (2.0 if self._channel.awaits_weights() else 1.0)
        silent = [(request, now - self._since(request)) for request in unanswered]
        return [(request, Hanging(f"no answer for {time:.1f} seconds")) for request, time in silent if time > patience]

    def look_again(self, requested: Sequence[Requested], now: float) -> None:
        """Sets when actors are to be looked at again; what is asked for later hangs later."""
        self.hangs_at = min(map(self._since, requested), default=now) + self.rule.timeout
        if self.hangs_at < now:
            self.hangs_at = now + self.rule.timeout / 10.0  # somebody is waiting for weights: looked at again soon

    def _since(self, request: Requested) -> float:
        return max(request.asked_at, self.heard_of[request.actor])

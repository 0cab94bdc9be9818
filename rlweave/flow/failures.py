"""Failures of the actors of a gather's source: which the plan goes on after, and who does not answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.context import Context
from rlweave.flow.engine import ActorLost, ArgumentFailed, Call
from rlweave.flow.envelope import Envelope
from rlweave.flow.operator import Operator
from rlweave.flow.plan_errors import failure
from rlweave.flow.sources import RolloutSource
from rlweave.flow.supervision import FailureRule, Hanging, Supervisor
from rlweave.flow.workers import Requested, origin_of


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
    (`note`, then `stop`). It asks who can be asked (`stopped`), and the supervisor who is there again.

    Args:
        source: Whose actors they are.
        stages: The operators that run beside them.
        context: Of the plan.
    """

    def __init__(self, source: RolloutSource, stages: Sequence[Operator], context: Context) -> None:
        self._source, self._context = source, context
        self._now = context.clock.now
        self._channel = context.channel(source.group)
        self.rule = source.failure_rule or FailureRule()
        self._rules = {stage.name: stage.failure_rule or self.rule for stage in stages}
        self.supervisor = Supervisor(
            len(source.group),
            self.rule,
            context,
            source.name,
            self._restart,
            # who were made without a learner would act on weights that nobody trained
            lambda look: not self._channel.lacks_learner(look),
        )
        context.stopped[source.group.key] = self.supervisor.stopped
        self.last_error: PlanError | None = None
        """The newest failure that the plan went on after. Without one, nobody is stopped or restarting."""
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
        """Notes a failure of an actor; whether the actor is to be stopped.

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

    # -- actors that are restarted ------------------------------------------------------------------------------

    def stopped(self, index: int) -> bool:
        """Whether an actor cannot be asked: it is given up, or its successor is not there yet."""
        return self.last_error is not None and self.supervisor.stopped(index)

    def restarting(self) -> bool:
        """Whether any actor is to come."""
        return self.last_error is not None and self.supervisor.restarting()

    def stop(self, index: int) -> None:
        """Ends an actor, and plans its restart or gives it up."""
        self._context.stop_actor(self._source.group, index)
        self.supervisor.stop(index)
        self._source.stopped(index)

    def _restart(self, index: int) -> Call:
        return self._context.restart_actor(self._source.group, index, self.supervisor.replaced[index])

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

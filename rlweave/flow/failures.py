"""Failures of the actors of a gather's source: after which of them the plan goes on, and which actors hang."""

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
        skipped: Whether only the item is skipped, and the actor goes on.
        actor_lost: Whether the actor is dead or hangs, so that all items of its call are lost.
    """

    error: PlanError
    skipped: bool
    actor_lost: bool


class Failures:
    """The failures of the actors of a source, for the gather that asks them.

    The gather passes every error to `judge`. Where the actor is not to go on, it drops the actor's pending items
    (`note`, then `stop`). `stopped` tells which actors it may ask.

    Args:
        source: The source of the actors.
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
            # actors that were made without a learner would act on untrained weights
            lambda look: not self._channel.lacks_learner(look),
        )
        context.stopped[source.group.key] = self.supervisor.stopped
        context.given_up[source.group.key] = self.supervisor.given_up
        self.last_error: PlanError | None = None
        """The newest failure after which the plan went on. Without one, no actor is stopped or restarting."""
        self.heard_of = [0.0] * len(source.group)
        """When each actor delivered last."""
        self.hangs_at = 0.0
        """Before this time no actor counts as hanging."""

    # -- what the rules say ----------------------------------------------------------------------------------

    def judge(self, error: Exception, item: Envelope, version: float) -> Survived | None:
        """Applies the rule to a failure of an actor, and counts it.

        Args:
            error: The error.
            item: The item that it was asked for.
            version: Of the weights that it was asked for it with.

        Returns:
            The failure after which the plan goes on; None if nothing is lost, because there were no weights yet.

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
            if lost := self._channel.lost_learners():
                operator = f"weights of {', '.join(lost)} for {source}"
        actor_lost = isinstance(error, ActorLost | Hanging)
        if rule.on_error == "stop" or (actor_lost and rule.on_error == "skip"):
            raise failure(operator, item, cause) from cause
        self._context.counters.fail(operator)
        survived = failure(operator, item, cause)
        survived.__cause__ = cause
        return Survived(survived, rule.on_error == "skip", actor_lost)

    def note(self, index: int, survived: Survived) -> bool:
        """Notes a failure of an actor; returns whether the actor is to be stopped.

        Raises:
            PlanError: If the rule is to skip, and too many were skipped in a row.
        """
        self.last_error = survived.error
        too_many = self.supervisor.failed(index)
        if survived.skipped and too_many:
            raise survived.error from survived.error.__cause__
        return not survived.skipped

    def check_alive(self, over: Sequence[bool]) -> None:
        """Raises the last error if no actor is left that could work.

        Args:
            over: Numbers of the actors that have no more items.

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
        """Whether an actor cannot be asked: it is given up, or not restarted yet."""
        return self.last_error is not None and self.supervisor.stopped(index)

    def restarting(self) -> bool:
        """Whether any actor is being restarted."""
        return self.last_error is not None and self.supervisor.restarting()

    def stop(self, index: int) -> None:
        """Ends an actor, and schedules its restart or gives it up."""
        self._context.stop_actor(self._source.group, index)
        self.supervisor.stop(index)
        self._source.stopped(index)

    def _restart(self, index: int) -> Call:
        return self._context.restart_actor(self._source.group, index, self.supervisor.replaced[index])

    # -- actors that do not answer ------------------------------------------------------------------------------

    def hanging(self, unanswered: Sequence[Requested], now: float) -> list[tuple[Requested, Hanging]]:
        """Requests whose actors have not answered in time."""
        # a hanging learner delays the workers that wait for its weights, so it is detected first
        patience = self.rule.timeout * (2.0 if self._channel.awaits_weights() else 1.0)
        silent = [(request, now - self._since(request)) for request in unanswered]
        return [(request, Hanging(f"no answer for {time:.1f} seconds")) for request, time in silent if time > patience]

    def look_again(self, requested: Sequence[Requested], now: float) -> None:
        """Sets when actors are checked again; later requests time out later."""
        self.hangs_at = min(map(self._since, requested), default=now) + self.rule.timeout
        if self.hangs_at < now:
            self.hangs_at = now + self.rule.timeout / 10.0  # an actor waits for weights: it is checked again soon

    def _since(self, request: Requested) -> float:
        return max(request.asked_at, self.heard_of[request.actor])

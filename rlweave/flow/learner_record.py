"""A learner of a plan as the plan knows it: versions of its weights, and, in an actor, how it is made anew."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.calls import ANSWER_SECONDS
from rlweave.flow.clock import Clock
from rlweave.flow.counters import Counters
from rlweave.flow.engine import Actor, ActorLost, ArgumentFailed, Call, Engine, LocalCall, value_of
from rlweave.flow.failure_rule import FailureRule
from rlweave.flow.item_state import decode, encode
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.protocols import Learner


class LearnerRecord:
    """A learner of a plan and its number of updates, which is the version of its weights.

    Args:
        learner: The learner, or where it is to live.
        engine: Where actors live.
    """

    def __init__(self, learner: Learner | LearnerActor, engine: Engine) -> None:
        self.learner = learner
        self.actor: Actor | None = None
        """The learner's actor, if it lives in one."""
        if isinstance(learner, LearnerActor):
            (self.actor,) = engine.create_actors([learner.factory], learner.resources)
        self.updates = 0
        self.busy = False
        """Whether its actor works on the next update: what it is asked for now comes behind that."""
        self.lost = False
        """Whether its actor is known to be gone, and not replaced yet: workers go on with the weights they have."""
        self.replaceable = False
        self.save_every = learner.save_every if isinstance(learner, LearnerActor) else 1
        self._engine = engine
        self._put_version = -1
        self._handle: Any = None
        self._snapshots: list[tuple[int, Call]] = []
        """Versions whose state was asked for, oldest first, with the calls that give it."""

    @property
    def newest(self) -> int:
        """Version of the weights that can be had now: those asked for before the update that its actor is busy with."""
        return self._put_version if self.busy and self._put_version >= 0 else self.updates

    def weights(self) -> Any:
        """The engine's handle on the weights of version ``newest``; read from the learner once per version.

        Those of a learner in an actor go from there to the workers, and never through the driver.
        """
        if self._put_version != self.newest:
            if self.actor is not None:
                self._handle = self._engine.call(self.actor, "get_weights")
            else:
                assert not isinstance(self.learner, LearnerActor)
                self._handle = self._engine.put(self.learner.get_weights())
            self._put_version = self.updates
        return self._handle

    def offer(self) -> None:
        """Asks its actor for the weights now: behind the next update they would be of another version, and late."""
        if self.actor is not None and not self.lost:
            self.weights()

    def reread(self) -> None:
        """Reads the weights again next time, because they were replaced without an update."""
        self._put_version = -1

    def offer_state(self) -> dict[str, Any] | None:
        """The weights that the next worker gets without the learner being read, where the engine is in this process.

        On any other one it is a matter of time which weights a worker gets, and who resumes begins with the newest.
        """
        held = self._put_version >= 0 and (self.actor is not None or self._put_version == self.updates)
        if not self._engine.in_process or not held:
            return None
        weights = encode(value_of(self._handle), "the weights of a learner")
        return {"version": self._put_version, "busy": self.busy, "weights": weights}

    def load_offer(self, state: Mapping[str, Any] | None) -> None:
        """Takes over what `offer_state` gave."""
        if state is not None:
            self._put_version, self.busy = int(state["version"]), bool(state["busy"])
            self._handle = LocalCall(decode(state["weights"]), None)

    def is_asked(self) -> bool:
        """Whether its actor was asked for weights and has not answered yet."""
        return self.actor is not None and self._put_version >= 0 and not self._engine.wait([self._handle], 0)

    # -- a learner that may be made anew -------------------------------------------------------------------------

    def protect(self) -> None:
        """Keeps snapshots of the learner's state from now on, so that it can be made anew in its place."""
        self.replaceable = True
        self.keep_snapshot()

    def updated(self) -> None:
        """Counts an update; every so often the state is kept, where it is: it does not pass through the driver."""
        self.updates += 1
        self.busy = False
        if self.replaceable and self.updates - self._snapshots[-1][0] >= self.save_every:
            self.keep_snapshot()

    def keep_snapshot(self) -> None:
        """Asks for the state as it is now, unless the last answer is still awaited. Two older ones are kept."""
        if (
            not self.replaceable
            or self.lost
            or (self._snapshots and not self._engine.wait([self._snapshots[-1][1]], 0))
        ):
            return
        self._snapshots = [*self._snapshots[-2:], (self.updates, self._engine.call(self.actor, "state_dict"))]

    def is_lost(self) -> bool:
        """Whether the last reading of weights says that the actor is gone; then somebody has to replace it."""
        if self.replaceable and not self.lost and self._put_version >= 0 and self._engine.wait([self._handle], 0):
            try:
                self._handle.result()
            except ActorLost:
                self.lost = True
            except Exception:  # not the actor's end: who uses the weights tells it
                return False
        return self.lost

    def make_anew(self, operator: str) -> tuple[int, Call]:
        """Makes the learner anew from its last snapshot that can be had.

        Args:
            operator: Who trains it, for errors.

        Returns:
            The version it is restored to, and a call that is done when it is there. If that call's argument failed,
            `drop_snapshot` and try again.

        Raises:
            PlanError: There is no snapshot left.
        """
        assert isinstance(self.learner, LearnerActor)
        self.lost, self.busy = True, False
        with contextlib.suppress(Exception):
            self._engine.kill([self.actor])
        (self.actor,) = self._engine.create_actors([self.learner.factory], self.learner.resources)
        if not self._snapshots:
            raise PlanError(
                "no state of the learner is left to begin from",
                where=f"operator {operator!r}",
                received="its actor and all snapshots of its state are lost",
                fix="resume from the last checkpoint",
            )
        version, snapshot = self._snapshots[-1]
        return version, self._engine.call(self.actor, "load_state_dict", snapshot)

    def drop_snapshot(self) -> None:
        """Forgets the newest snapshot, which cannot be had."""
        self._snapshots.pop()

    def restored(self) -> None:
        """Goes on: what it has now is a version of its own, newer than all that anybody has."""
        self.lost = False
        self.updates += 1
        self.reread()
        self._snapshots.clear()
        self.keep_snapshot()


class LearnerRebirth:
    """The replacement of a learner's actor, step by step, while the rest of the plan goes on.

    Args:
        record: The learner.
        rule: How often it may fail in a row, and how long to wait before it is made anew.
        engine: Where it lives.
        clock: Where the time is read.
        counters: The plan's counters.
        name: The operator's name.
    """

    def __init__(
        self, record: LearnerRecord, rule: FailureRule, engine: Engine, clock: Clock, counters: Counters, name: str
    ) -> None:
        self.record, self.rule, self.name = record, rule, name
        self._engine, self._clock, self._now, self._counters = engine, clock, clock.now, counters
        self._failures = self._successes = 0
        self._due_at: float | None = None
        self._born: tuple[int, Call, float] | None = None
        self.last_seconds = 0.0
        """How long the last replacement took, from the failure that was noticed to a learner that works."""
        self._noticed_at = 0.0

    @property
    def going_on(self) -> bool:
        """Whether the learner is being made anew."""
        return self._due_at is not None or self._born is not None

    def begin(self, error: Exception) -> bool:
        """Notes a failure; whether the learner is to be made anew, or has failed too often in a row."""
        self._failures += 1
        self._successes = 0
        self.record.lost = True
        if self._failures >= self.rule.attempts:
            return False
        self._counters.fail(self.name)
        self._noticed_at = self._now()
        self._due_at = self._noticed_at + self.rule.delay(self._failures)
        return True

    def succeeded(self) -> None:
        """Notes that an update went through. Failures are in a row until so many did that not all can be lost again."""
        self._successes += 1
        if self._successes >= self.record.save_every:
            self._failures = 0

    def advance(self) -> bool:
        """Goes a step on if it can; whether the learner is there now.

        Raises:
            Exception: What the new learner raised while it was made.
        """
        if self._due_at is not None:
            if self._now() < self._due_at:
                return False
            self._due_at = None
            self._counters.replace(self.name)
            self._born = (*self.record.make_anew(self.name), self._now())
        if self._born is None:
            return True
        version, call, began = self._born
        if not self._engine.wait([call], 0):
            if self._now() - began > ANSWER_SECONDS:
                self._born = None
                raise TimeoutError(f"the learner was not made anew within {ANSWER_SECONDS:g} seconds")
            return False
        self._born = None
        try:
            call.result()
        except ArgumentFailed:  # that snapshot went down with the actor; the one before may not have
            self.record.drop_snapshot()
            self._born = (*self.record.make_anew(self.name), self._now())
            return False
        self._counters.lose_updates(self.name, self.record.updates - version)
        self.record.restored()
        self.last_seconds = self._now() - self._noticed_at
        return True

    def waits_on(self) -> list[Call]:
        """The call that makes it."""
        return [] if self._born is None else [self._born[1]]

    def wakes_at(self) -> float | None:
        """When it is to be made."""
        return self._due_at

    def wait(self) -> None:
        """Waits for the next step: until it is time, or until it is made, but for a second at most."""
        calls = self.waits_on()
        if calls:
            self._engine.wait(calls, 1.0)
        elif self._due_at is not None:
            self._clock.sleep(min(1.0, max(0.0, self._due_at - self._now())))

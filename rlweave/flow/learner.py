"""Learners of a plan: in this process or in an actor, with versions of weights, snapshots, and results of updates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.codec import decode, encode, saved_as
from rlweave.flow.engine import Actor, ActorLost, Call, Engine, LocalCall, value_of
from rlweave.flow.item_types import check_arguments, positive, signature_of
from rlweave.flow.protocols import Learner, RestorableLearner, require
from rlweave.flow.resources import Resources


@saved_as("train_stats")
@dataclass(slots=True)
class TrainStats:
    """Result of one call of a learner's ``update``.

    Attributes:
        metrics: The learner's metrics, not read yet if they are on a device.
        num_steps: Samples trained on, each as often as it was used.
        gradient_steps: Optimizer steps taken.
        version: Number of updates of this learner, this one included.
        priorities: New priorities as (indices, priorities) for `UpdatePriorities`, if the learner gave any.
    """

    metrics: dict[str, Any] = field(default_factory=dict)
    num_steps: int = 0
    gradient_steps: int = 1
    version: int = 0
    priorities: tuple[Any, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """JSON-able data and arrays. Metrics on a device are read here."""
        return {
            "metrics": {name: float(value) for name, value in self.metrics.items()},
            "num_steps": self.num_steps,
            "gradient_steps": self.gradient_steps,
            "version": self.version,
            "priorities": self.priorities,
        }


class LearnerActor:
    """A learner that lives in an actor: how to make it there.

    Give it to `TrainOneStep` or `ApplyGradients` in place of a learner.

    Weights go from the actor to the workers without passing through the driver.

    Args:
        factory: Makes the learner; without arguments.
        resources: What it holds on a cluster while it lives.
        save_every: With ``on_error("replace")``, which restarts it after a failure: updates from one snapshot of its
            state, from which the new one begins, to the next. Such a learner has ``state_dict()`` and
            ``load_state_dict(state)``.
    """

    def __init__(
        self, factory: Callable[[], Learner], resources: Resources | None = None, save_every: int = 10
    ) -> None:
        if not callable(factory) or (callable(getattr(factory, "update", None)) and not isinstance(factory, type)):
            raise PlanError(
                "LearnerActor makes its learner itself",
                where="LearnerActor, argument 'factory'",
                received=type(factory).__name__,
                fix="give a function without arguments that returns the learner",
            )
        check_arguments(factory, 0, "LearnerActor", "a factory")
        self.factory = factory
        self.resources = resources or Resources()
        self.save_every = positive("save_every", save_every, "train_one_step")
        self.kind: Any = signature_of(factory).gives
        if self.kind is not Any:
            require(self.kind, Learner, "train_one_step", "learner")

    def check_restorable(self, operator: str) -> None:
        """Checks that the learner can be restarted from a state.

        Raises:
            PlanError: If its class lacks a method that this needs.
        """
        if self.kind is not Any:
            require(self.kind, RestorableLearner, operator, "learner")


class LearnerRecord:
    """A learner of a plan and its number of updates, which is the version of its weights.

    Args:
        learner: The learner, or where it is to live.
        engine: Where actors live.
    """

    def __init__(self, learner: Learner | LearnerActor, engine: Engine) -> None:
        self.learner = learner
        self.trainer = ""
        """Name of the operator that trains it, for errors."""
        self.actor: Actor | None = None
        """The learner's actor, if it lives in one."""
        if isinstance(learner, LearnerActor):
            (self.actor,) = engine.create_actors([learner.factory], learner.resources)
        self.updates = 0
        self.busy = False
        """Whether its actor is busy with the next update, so that requests are answered after it."""
        self.lost = False
        """Whether its actor is known to be dead and not restarted yet: workers go on with the weights they have."""
        self.replaceable = False
        self.save_every = learner.save_every if isinstance(learner, LearnerActor) else 1
        self._engine = engine
        self._put_version = -1
        self._handle: Any = None
        self._restored_from = 0
        self._snapshots: list[tuple[int, Call]] = []
        """Versions of the requested snapshots, oldest first, with their calls."""

    @property
    def newest(self) -> int:
        """Version of the newest available weights: those requested before the update that its actor is busy with."""
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
        """Asks its actor for the weights now: after the next update they would be late, and of another version."""
        if self.actor is not None and not self.lost:
            self.weights()

    def reread(self) -> None:
        """Reads the weights again next time, because they were loaded without an update."""
        self._put_version = -1

    def offer_state(self) -> dict[str, Any] | None:
        """The cached weights that the next worker gets, if the engine is in this process.

        On other engines timing decides which weights a worker gets, and a resumed plan begins with the newest.
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
        """Whether weights were requested of its actor and have not arrived yet."""
        return self.actor is not None and self._put_version >= 0 and not self._engine.wait([self._handle], 0)

    # -- a learner that may be restarted --------------------------------------------------------------------------

    def protect(self) -> None:
        """Keeps snapshots of the learner's state from now on, so that it can be restarted in place."""
        self.replaceable = True
        self.keep_snapshot()

    def updated(self) -> None:
        """Counts an update, and takes a snapshot every so often; it does not pass through the driver."""
        self.updates += 1
        self.busy = False
        if self.replaceable and self.updates - self._snapshots[-1][0] >= self.save_every:
            self.keep_snapshot()

    def keep_snapshot(self) -> None:
        """Requests a snapshot of the state, unless the last one is still awaited. Two older ones are kept."""
        if (
            not self.replaceable
            or self.lost
            or (self._snapshots and not self._engine.wait([self._snapshots[-1][1]], 0))
        ):
            return
        self._snapshots = [*self._snapshots[-2:], (self.updates, self._engine.call(self.actor, "state_dict"))]

    def is_lost(self) -> bool:
        """Whether the last reading of weights shows that the actor is dead, so that it has to be restarted."""
        if self.replaceable and not self.lost and self.lost_weights():
            self.lost = True
        return self.lost

    def lost_weights(self) -> bool:
        """Whether the last reading of weights shows that the actor is dead."""
        if self.actor is None or self._put_version < 0 or not self._engine.wait([self._handle], 0):
            return False
        try:
            self._handle.result()
        except ActorLost:
            return True
        except Exception:  # another error: whoever uses the weights raises it
            return False
        return False

    def restart(self, operator: str) -> Call:
        """Restarts the learner from its last available snapshot.

        Args:
            operator: Name of the operator that trains it, for errors.

        Returns:
            A call that is done when the learner is there. If the call's argument failed, `drop_snapshot` and try again.

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
                "no snapshot of the learner is left to restart it from",
                where=f"operator {operator!r}",
                received="its actor and all snapshots of its state are lost",
                fix="resume from the last checkpoint",
            )
        self._restored_from, snapshot = self._snapshots[-1]
        return self._engine.call(self.actor, "load_state_dict", snapshot)

    def drop_snapshot(self) -> None:
        """Drops the newest snapshot, which is lost."""
        self._snapshots.pop()

    def restored(self) -> int:
        """Continues with a new version of the weights, newer than all that workers have.

        Returns:
            The number of lost updates.
        """
        lost = self.updates - self._restored_from
        self.lost = False
        self.updates += 1
        self.reread()
        self._snapshots.clear()
        self.keep_snapshot()
        return lost

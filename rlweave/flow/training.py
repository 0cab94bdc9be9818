"""Operators that train: steps of a learner, here or in its actor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from rlweave.flow.at_actor import AtActor, CallsLearner
from rlweave.flow.context import Context
from rlweave.flow.engine import Call
from rlweave.flow.envelope import ABSORBED, UNKNOWN_VERSION, Envelope, HeldBatch, Pulled
from rlweave.flow.gradients import Gradients
from rlweave.flow.item_types import Signature, positive, snake_case
from rlweave.flow.learner import LearnerActor, TrainStats
from rlweave.flow.operator import Graph, Operator
from rlweave.flow.protocols import BatchType, GradientLearner, Learner, TakesWeights, require, steps_of
from rlweave.flow.weights import WeightChannel
from rlweave.flow.workers import WorkerGroup, Workers

Item = TypeVar("Item")


class LearnerOperator(Operator):
    """Base of operators that train a learner on each item, which makes one new weight version.

    The weight lag of an item is noted before the step; an item that has become older than the ``max_lag``
    of its gather on its way here is dropped, and counted. After the step, samples, optimizer steps and the update
    are counted, metrics are kept until the next report, and the weights are published. A learner in an actor is called
    there, while the plan goes on: see `AtActor`.

    Args:
        learner: The learner, or where it is to live.
        workers: Workers that get its weights; None sends none.
        publish_every: Updates from one publication of weights to the next.

    Raises:
        PlanError: If the learner lacks a method, or ``workers`` are no workers.
        ConfigError: If ``publish_every`` is below 1.
    """

    at_source: ClassVar[bool] = False
    may_wait: ClassVar[bool] = True
    protocol: ClassVar[type] = Learner
    """The protocol that the learner has to follow."""
    method: ClassVar[str] = "update"
    """Name of its method that takes a payload and returns metrics, as `Learner.update` does."""
    calls: ClassVar[type[CallsLearner]] = AtActor
    """How a learner in an actor is called."""

    def __init__(self, learner: Any, workers: Workers | None = None, publish_every: int = 1) -> None:
        name = snake_case(type(self).__name__)
        if isinstance(learner, LearnerActor):
            self.runs_at, self.on_error_choices = "learner", ("stop", "replace")
        else:
            require(learner, self.protocol, name, "learner")
        self.learner = self.trains = learner
        self.sends_to = None if workers is None else WorkerGroup.of(workers, name, TakesWeights)
        self.publish_every = positive("publish_every", publish_every, name)
        self._channel: WeightChannel | None = None
        self._bounds: list[tuple[WorkerGroup, int]] = []
        self._lag: int | None = None  # of the item at hand; counted when it has been trained on
        self._at_actor: CallsLearner | None = None

    def brings(self, payload: Any) -> Mapping[str, Any]:
        """Metrics that a payload brings along, which are reported beside those of the step."""
        return {}

    def check(self, graph: Graph) -> None:
        """Finds the bounds on the lag of incoming items; a learner that may be restarted needs a state."""
        self._bounds = graph.max_lags_above(self)
        restarts = self.failure_rule is not None and self.failure_rule.on_error == "replace"
        if restarts and isinstance(self.learner, LearnerActor):
            self.learner.check_restorable(self.name)

    def start(self, context: Context) -> None:
        """Connects the learner with the weight channel of the workers."""
        self._record = context.learner(self.learner)
        self._record.trainer = self.name
        self._max_lags = {context.channel(group): most for group, most in self._bounds}
        if self.sends_to is not None:
            self._channel = context.channel(self.sends_to)
            self._channel.tie(self._record)
        if isinstance(self.learner, LearnerActor):
            self._at_actor = self.calls(self, context)
            self.pull = self._at_actor.pull  # type: ignore[method-assign]

    def process(self, envelope: Envelope) -> Pulled:
        """Trains the learner on the item, counts, and publishes the weights."""
        if not self.admits(envelope):
            return ABSORBED
        return self.finish(envelope, getattr(self.learner, self.method)(envelope.payload))

    def finish(self, envelope: Envelope, result: Any) -> Envelope:
        """Counts the update, and publishes the weights."""
        if not isinstance(result, Mapping):
            raise TypeError(f"{self.method}() gave {type(result).__name__}, where a learner gives metrics by name")
        metrics = {**self.brings(envelope.payload), **result}
        self._record.updated()
        if self._lag is not None:
            self._context.note_train_lag(self.name, self._lag)
            self._lag = None
        stats = self._stats(envelope.payload, metrics)
        self._count(stats)
        if self._channel is not None and self._record.updates % self.publish_every == 0:
            self._channel.publish_to_all()
            self._record.offer()
        return envelope.carrying(stats)

    def admits(self, envelope: Envelope) -> bool:
        """Whether the weight lag of an item is within its bound; remembers the lag."""
        self._lag = None
        if envelope.weight_version == UNKNOWN_VERSION:
            return True
        context, origins = self._context, envelope.origins
        maker = context.worker_of(origins[0][0])
        if maker is None or self._record not in maker[0].learners:
            return True
        lag = maker[0].lag(envelope.weight_version, envelope.versions, self._record)
        if lag > self._max_lags.get(maker[0], lag):
            self._counters.drop(self.name)
            # the workers may have no newer weights yet, so the next items might be as old
            for channel, index in filter(None, (context.worker_of(source) for source, _ in origins)):
                channel.publish(index)
            return False
        self._lag = lag
        return True

    def _stats(self, payload: Any, metrics: dict[str, Any]) -> TrainStats:
        steps = int(metrics.pop("trained_samples", -1))
        return TrainStats(
            num_steps=steps if steps >= 0 else steps_of(payload),
            gradient_steps=int(metrics.pop("gradient_steps", 1)),
            version=self._record.updates,
            priorities=metrics.pop("priorities", None),
            metrics=metrics,
        )

    def _count(self, stats: TrainStats) -> None:
        counters = self._counters
        counters.trained_samples += stats.num_steps
        counters.gradient_steps += stats.gradient_steps
        counters.updates += 1
        self._context.metrics.add(self.name, stats.metrics, finite=True)

    def waits_on(self) -> Iterator[Call]:
        """What the learner's actor works on."""
        return iter(()) if self._at_actor is None else self._at_actor.waits_on()

    def wakes_at(self) -> float | None:
        """When the learner's actor counts as hanging, or is to be restarted."""
        return None if self._at_actor is None else self._at_actor.wakes_at()

    def drain(self) -> None:
        """Waits for the learner's actor."""
        if self._at_actor is not None:
            self._at_actor.drain()

    def measures(self) -> dict[str, float]:
        """Duration of the last restart of the learner."""
        seconds = 0.0 if self._at_actor is None else self._at_actor.recovery_seconds
        return {"recovery_seconds": seconds} if seconds else {}

    def placement(self) -> str:
        """In the driver, or in an actor."""
        return "1 actor" if isinstance(self.learner, LearnerActor) else "driver"

    def note(self) -> str:
        """The learner, and the workers that get its weights."""
        every = f" after every {self.publish_every} updates" if self.publish_every > 1 else ""
        takes = self.sends_to is not None and self.sends_to.take_weights()
        receivers = f"{len(self.sends_to)} workers" if self.sends_to is not None and takes else "nobody"
        name = "learner" if isinstance(self.learner, LearnerActor) else type(self.learner).__name__
        return f"{name}, sends weights to {receivers}{every}"

    def state_dict(self) -> dict[str, Any]:
        """Weight version, the current item and its lag. The learner itself is not in it: its owner saves it."""
        actor = None if self._at_actor is None else self._at_actor.state_dict()
        return {"updates": self._record.updates, "lag": self._lag, "at_actor": actor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._record.updates, self._lag = int(state["updates"]), state["lag"]
        if self._at_actor is not None and state["at_actor"] is not None:
            self._at_actor.load_state_dict(state["at_actor"])


class TrainOneStep(LearnerOperator):
    """Trains a learner on each item: one call of its ``update``, which makes one new weight version.

    Args:
        learner: See `rlweave.flow.Learner`; a `LearnerActor` trains in an actor of its own while the driver goes on.
        workers: Workers that act on this learner's weights; each gets the new ones before its next item. Without them,
            `UpdateWeights` sends weights, or nothing does.
        publish_every: Updates from one publication of weights to the next.
    """

    def signature(self) -> Signature:
        """Takes batches; for a learner in an actor also references to them, whose items it gets from their makers."""
        return Signature(HeldBatch if isinstance(self.learner, LearnerActor) else BatchType, TrainStats)


class ApplyGradients(LearnerOperator):
    """Applies each item's gradients: one optimizer step of a learner, which makes one new weight version.

    RLlib Flow's listing says ``ApplyGradients(workers)``: its set of workers has the learner in it. Here a learner is
    an object of its own, which may live in an actor, so it is named, as in `TrainOneStep` and `UpdateWeights`.

    The worker that made an item gets the new weights with its next one (and so do the others with theirs).

    Args:
        learner: See `rlweave.flow.GradientLearner`; or a `LearnerActor` that makes one.
        workers: Workers that act on this learner's weights.
        publish_every: Optimizer steps from one publication of weights to the next.
    """

    protocol: ClassVar[type] = GradientLearner
    method: ClassVar[str] = "apply_gradients"

    def signature(self) -> Signature:
        """Takes gradients."""
        return Signature(Gradients, TrainStats)

    def brings(self, payload: Gradients) -> Mapping[str, Any]:
        """Metrics of how the gradients were computed."""
        return payload.metrics

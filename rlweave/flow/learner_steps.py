"""Steps of a learner as a plan sees them: each makes a new weight version, which is counted and published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlweave.flow.engine import Call
from rlweave.flow.envelope import ABSORBED, UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.operators import positive
from rlweave.flow.protocols import Learner, TakesWeights, require, steps_of
from rlweave.flow.train_stats import TrainStats
from rlweave.flow.weights import WeightChannel
from rlweave.flow.work import Work
from rlweave.flow.workers import WorkerGroup, Workers

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.node import Node
    from rlweave.flow.plan_graph import PlanGraph


class LearnerSteps(Work):
    """Has a learner work on each item, and does what that means to the plan.

    How old the weights behind an item are is noted before the step; an item that has become older than the ``max_lag``
    of its gather on its way here is dropped, and counted. After the step, samples, optimizer steps and the update
    are counted, metrics are kept until the next report, and the weights published. A learner in an actor is called
    there, and nobody waits for it meanwhile.

    Args:
        operator: Whose work this is, for errors.
        learner: The learner, or where it is to live.
        protocol: What it has to be.
        method: Name of its method that takes a payload and returns metrics, as `Learner.update` does.
        workers: Workers that act on its weights; None sends them to nobody.
        publish_every: Updates from one publication of weights to the next.
        brings: Metrics that a payload brings along, which are reported beside those of the step.

    Raises:
        PlanError: If the learner lacks a method, or something else than workers is given as such.
        ConfigError: If ``publish_every`` is below 1.
    """

    def __init__(
        self,
        operator: str,
        learner: Learner | LearnerActor,
        protocol: type,
        method: str,
        workers: Workers | None,
        publish_every: int,
        brings: Callable[[Any], Mapping[str, Any]] = lambda payload: {},
    ) -> None:
        if isinstance(learner, LearnerActor):
            self.learner_actor = learner
        else:
            require(learner, protocol, operator, "learner")
        self.learner = self.trains = learner
        self.method, self.brings = method, brings
        self.group = None if workers is None else WorkerGroup.of(workers, operator, TakesWeights)
        self.publish_every = positive("publish_every", publish_every, operator)
        self._channel: WeightChannel | None = None
        self._bounds: list[tuple[WorkerGroup, int]] = []
        self._lag: int | None = None  # of the item at hand; counted when it has been trained on

    def check_plan(self, node: Node, graph: PlanGraph) -> None:
        """Finds the bounds on the lag of the items that come."""
        self._bounds = graph.max_lags_above(node)

    def start(self, context: Context, name: str) -> None:
        """Ties the learner to the workers."""
        self._context, self._name = context, name
        self._record = context.learner(self.learner)
        self._max_lags = {context.channel(group): most for group, most in self._bounds}
        if self.group is not None:
            self._channel = context.channel(self.group)
            self._channel.tie(self._record)

    def process(self, envelope: Envelope) -> Pulled:
        """Has the learner work on the item, counts, and publishes the weights."""
        if not self.admits(envelope):
            return ABSORBED
        return self.finish(envelope, getattr(self.learner, self.method)(envelope.payload))

    def begin(self, envelope: Envelope) -> Call:
        """Has the learner's actor work on the item."""
        self._record.busy = True
        return self._context.engine.call(self._record.actor, self.method, envelope.payload)

    def finish(self, envelope: Envelope, result: Mapping[str, Any]) -> Pulled:
        """Counts, and publishes the weights."""
        if not isinstance(result, Mapping):
            raise TypeError(f"{self.method}() gave {type(result).__name__}, where a learner gives metrics by name")
        metrics = {**self.brings(envelope.payload), **result}
        self._record.updated()
        if self._lag is not None:
            self._context.note_train_lag(self._name, self._lag)
            self._lag = None
        stats = self._stats(envelope.payload, metrics)
        self._count(stats)
        if self._channel is not None and self._record.updates % self.publish_every == 0:
            self._channel.publish_to_all()
            self._record.offer()
        return envelope.carrying(stats)

    def admits(self, envelope: Envelope) -> bool:
        """Whether the weights behind an item are young enough; remembers how old they are."""
        self._lag = None
        if envelope.weight_version == UNKNOWN_VERSION:
            return True
        context, origins = self._context, envelope.origins
        maker = context.worker_of(origins[0][0])
        if maker is None or self._record not in maker[0].learners:
            return True
        lag = maker[0].lag(envelope.weight_version, envelope.versions, self._record)
        if lag > self._max_lags.get(maker[0], lag):
            context.counters.drop(self._name)
            # with the weights that its workers have, the next items might be as old
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
        counters = self._context.counters
        counters.trained_samples += stats.num_steps
        counters.gradient_steps += stats.gradient_steps
        counters.updates += 1
        self._context.metrics.add(self._name, stats.metrics, finite=True)

    def note(self) -> str:
        """The learner, and who gets its weights."""
        every = f" after every {self.publish_every} updates" if self.publish_every > 1 else ""
        receivers = "nobody" if self.group is None else f"{len(self.group)} workers"
        name = "learner" if isinstance(self.learner, LearnerActor) else type(self.learner).__name__
        return f"{name}, sends weights to {receivers}{every}"

    def state_dict(self) -> dict[str, Any]:
        """Weight version, and lag of the item at hand. The learner itself is saved by who owns it."""
        return {"updates": self._record.updates, "lag": self._lag}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._record.updates, self._lag = int(state["updates"]), state["lag"]

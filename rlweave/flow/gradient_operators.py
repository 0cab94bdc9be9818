"""Operators on gradients: computed at the workers or at a learner, averaged, applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlweave.errors import PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.engine import Call
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.gradients import Gradients, average
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.operators import Operator, positive
from rlweave.flow.protocols import BatchType, ComputesGradients, GradientLearner, require
from rlweave.flow.rl_operators import TrainOneStep, Workers
from rlweave.flow.sources import ParForEach, RolloutSource
from rlweave.flow.train_stats import TrainStats
from rlweave.flow.workers import WorkerGroup

if TYPE_CHECKING:
    from rlweave.flow.node import Node


class ComputeGradients(Operator):
    """Computes the gradients of each item.

    In ``par_for_each(ComputeGradients())`` each worker does, on the weights that it acted with: only gradients travel
    (A3C). In ``for_each(ComputeGradients(learner))`` the learner does, on its own weights and in the driver's process
    (micro-batches).

    With ``microbatch_size`` an item is cut into parts whose gradients are computed one after the other and averaged,
    for items that do not fit into memory at once. The result is that of the whole, as the loss is a mean over steps.

    Args:
        learner: Who computes; None for the worker that made the item.
        microbatch_size: Environment steps in a part, the last one possibly smaller; None computes on whole items.
            Trajectories (T, B, ...) are cut along B, so there it is a multiple of T.
    """

    def __init__(self, learner: ComputesGradients | None = None, microbatch_size: int | None = None) -> None:
        if learner is not None:
            require(learner, ComputesGradients, "compute_gradients", "learner")
        if microbatch_size is not None:
            positive("microbatch_size", microbatch_size, "compute_gradients")
        self.learner, self.microbatch_size = learner, microbatch_size

    def bind(self, worker: ComputesGradients) -> None:
        """Has the worker compute."""
        self.learner = worker

    def check(self, node: Node) -> None:
        """Who computes has to be where the items are, and able to do so.

        Raises:
            PlanError: A learner was given at the workers, or none behind a gather; or a worker cannot compute.
        """
        upstream = node.inputs[0].node
        at_workers = isinstance(node, ParForEach)
        if at_workers == (self.learner is not None):
            raise PlanError(
                f"{node.name!r} computes with the worker's own agent at the workers, and with a learner's elsewhere",
                where=f"operators {upstream.name!r} and {node.name!r}",
                received="a learner in par_for_each" if at_workers else "no learner in for_each",
                fix="write par_for_each(ComputeGradients()) before the gather, or for_each(ComputeGradients(learner)) "
                "behind it",
            )
        if not at_workers:
            return
        while not isinstance(upstream, RolloutSource):
            upstream = upstream.inputs[0].node
        for kind in upstream.group.kinds():
            if kind is not Any:
                require(kind, ComputesGradients, node.name, "workers")

    def __call__(self, batch: BatchType) -> Gradients:
        """The gradients of one item."""
        assert self.learner is not None
        if self.microbatch_size is None:
            computed: Gradients = self.learner.compute_gradients(batch)
            return computed
        return average([self.learner.compute_gradients(part) for part in parts_of(batch, self.microbatch_size)])

    def note(self) -> str:
        """Who computes, if it is a learner, and on how much at a time."""
        learner = "" if self.learner is None else type(self.learner).__name__
        parts = "" if self.microbatch_size is None else f"microbatch_size={self.microbatch_size}"
        return ", ".join(filter(None, [learner, parts]))


def parts_of(batch: Any, size: int) -> list[SampleBatch]:
    """Parts of at most ``size`` environment steps, as views: rows, or whole trajectories (T, B, ...) cut along B.

    >>> import numpy as np
    >>> [len(part) for part in parts_of(SampleBatch({"rewards": np.zeros(7)}), 3)]
    [3, 3, 1]

    Raises:
        PlanError: It is no `SampleBatch`, or no whole number of trajectories has this many steps.
    """
    length = 0
    if isinstance(batch, SampleBatch):
        length = max(1, batch.leading[0]) if batch.layout == "trajectories" else 1
    if not length or size % length:
        raise PlanError(
            "an item cannot be cut into micro-batches",
            where="operator 'compute_gradients'",
            received=f"microbatch_size={size}, trajectories of {length} steps" if length else type(batch).__name__,
            fix=f"choose a multiple of {length}" if length else "let items be SampleBatch",
        )
    return [batch.slice(first, first + size // length) for first in range(0, batch.leading[-1], size // length)]


class AverageGradients(Operator):
    """Averages the gradients of a list of items, such as those of a round; each counts by its number of samples.

    The result is the gradient of the mean loss over all samples, as if they had been one batch::

        grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_sync()
        train = grads.batch_rounds().for_each(AverageGradients()).for_each(ApplyGradients(learner, workers))
    """

    def __call__(self, gradients: list[Gradients]) -> Gradients:
        """The average."""
        return average(gradients)


class ApplyGradients(TrainOneStep):
    """Has a learner take one optimizer step with each item, which makes one new weight version.

    RLlib Flow's listing says ``ApplyGradients(workers)``: its set of workers has the learner in it. Here a learner is
    an object of its own, which may live in an actor, so it is named, as in `TrainOneStep` and `UpdateWeights`.

    The worker that made an item gets the new weights with its next one (and so do the others with theirs).

    Args:
        learner: See `rlweave.flow.GradientLearner`; or a `LearnerActor` that makes one.
        workers: Workers that act on this learner's weights.
        publish_every: Optimizer steps from one publication of weights to the next.
    """

    at_source: ClassVar[bool] = False

    def __init__(
        self, learner: GradientLearner | LearnerActor, workers: Workers | None = None, publish_every: int = 1
    ) -> None:
        if isinstance(learner, LearnerActor):
            self.learner_actor = learner
        else:
            require(learner, GradientLearner, "apply_gradients", "learner")
        self.learner = self._applies = learner
        self.group = None if workers is None else WorkerGroup.of(workers, "apply_gradients")
        self.publish_every = positive("publish_every", publish_every, "apply_gradients")
        self._channel = None

    def __call__(self, gradients: Gradients) -> TrainStats:  # type: ignore[override]  # the types of its items
        """Types only; see ``process``."""
        raise NotImplementedError("ApplyGradients works on envelopes")

    def process(self, envelope: Envelope) -> Pulled:
        """Applies the gradients, counts, and publishes the weights."""
        assert not isinstance(self._applies, LearnerActor)
        self._note_lag(envelope)
        return self._account(envelope, self._metrics(envelope, self._applies.apply_gradients(envelope.payload)))

    def begin(self, envelope: Envelope) -> Call:
        """Has the learner's actor apply the gradients."""
        self._note_lag(envelope)
        self._record.busy = True
        return self._context.engine.call(self._record.actor, "apply_gradients", envelope.payload)

    def finish(self, envelope: Envelope, result: Mapping[str, Any]) -> Pulled:
        """Counts, and publishes the weights."""
        return self._account(envelope, self._metrics(envelope, result))

    @staticmethod
    def _metrics(envelope: Envelope, applied: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the computation, and those of the step."""
        return {**envelope.payload.metrics, **applied}

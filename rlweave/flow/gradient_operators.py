"""Operators on gradients: computed at the workers or at a learner, averaged, applied."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from rlweave.errors import PlanError
from rlweave.flow.gradients import Gradients, average
from rlweave.flow.item_types import Signature
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.learner_steps import LearnerSteps
from rlweave.flow.microbatches import Microbatches
from rlweave.flow.operators import Operator
from rlweave.flow.protocols import BatchType, ComputesGradients, GradientLearner, require
from rlweave.flow.sources import ParForEach, RolloutSource
from rlweave.flow.train_stats import TrainStats
from rlweave.flow.workers import Workers

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
        self.learner, self.microbatches = learner, Microbatches(microbatch_size)

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
        return self.microbatches.gradients(self.learner, batch)

    def note(self) -> str:
        """Who computes, if it is a learner, and on how much at a time."""
        learner = "" if self.learner is None else type(self.learner).__name__
        return ", ".join(filter(None, [learner, self.microbatches.note()]))


class AverageGradients(Operator):
    """Averages the gradients of a list of items, such as those of a round; each counts by its number of samples.

    The result is the gradient of the mean loss over all samples, as if they had been one batch::

        grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_sync()
        train = grads.batch_rounds().for_each(AverageGradients()).for_each(ApplyGradients(learner, workers))
    """

    def __call__(self, gradients: list[Gradients]) -> Gradients:
        """The average."""
        return average(gradients)


class ApplyGradients(Operator):
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
        super().__init__(
            LearnerSteps(
                "apply_gradients",
                learner,
                GradientLearner,
                "apply_gradients",
                workers,
                publish_every,
                brings=attrgetter("metrics"),  # of how the gradients were computed
            )
        )

    def signature(self) -> Signature:
        """Takes gradients."""
        return Signature(Gradients, TrainStats)

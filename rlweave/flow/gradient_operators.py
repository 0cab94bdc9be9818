"""Operators on gradients: computed at the workers or at a learner, and averaged."""

from __future__ import annotations

from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.gradients import Gradients, average
from rlweave.flow.microbatches import Microbatches
from rlweave.flow.operator import Operator, Port
from rlweave.flow.protocols import BatchType, ComputesGradients, require


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

    def check_place(self, upstream: Port, at_workers: bool) -> None:
        """Who computes has to be where the items are, and able to do so.

        Raises:
            PlanError: A learner was given at the workers, or none behind a gather; or a worker cannot compute.
        """
        name = self.default_name()
        if at_workers == (self.learner is not None):
            raise PlanError(
                f"{name!r} computes with the worker's own agent at the workers, and with a learner's elsewhere",
                where=f"operators {upstream.node.name!r} and {name!r}",
                received="a learner in par_for_each" if at_workers else "no learner in for_each",
                fix="write par_for_each(ComputeGradients()) before the gather, or for_each(ComputeGradients(learner)) "
                "behind it",
            )
        if not at_workers:
            return
        source = upstream.node.beside or upstream.node
        for kind in source.group.kinds() if source.group is not None else ():
            if kind is not Any:
                require(kind, ComputesGradients, name, "workers")

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

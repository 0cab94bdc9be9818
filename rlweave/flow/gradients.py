"""Gradients as items of a plan, and the operators that compute and average them, in micro-batches where need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.errors import PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.codec import saved_as
from rlweave.flow.item_types import positive
from rlweave.flow.operator import Operator, Port
from rlweave.flow.protocols import BatchType, ComputesGradients, require


@saved_as("gradients")
@dataclass(slots=True)
class Gradients:
    """Gradients of a loss that is a mean over samples.

    The version of the weights they were computed with stands in the envelope, as for every item.

    Attributes:
        values: Arrays by variable path, each of its variable's shape.
        num_steps: Samples that the mean is over; environment steps where each step is one sample.
        metrics: Of the computation, such as losses: a number each, a mean over the same samples.
    """

    values: dict[str, np.ndarray]
    num_steps: int
    metrics: dict[str, Any] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able data and arrays. Metrics on a device are read here."""
        return {
            "values": dict(self.values),
            "num_steps": self.num_steps,
            "metrics": {name: float(value) for name, value in self.metrics.items()},
        }


def average(parts: Sequence[Gradients]) -> Gradients:
    """The gradients of the mean over all samples of several parts: each part counts by its number of samples.

    Sums in float64, so that cutting a batch into many parts costs no precision.

    >>> one, three = Gradients({"w": np.array([1.0])}, 1), Gradients({"w": np.array([5.0])}, 3)
    >>> average([one, three])
    Gradients(values={'w': array([4.])}, num_steps=4, metrics={})

    Raises:
        PlanError: There is nothing to average, or the parts are of different variables or report different metrics.
    """
    total = sum(part.num_steps for part in parts)
    if total < 1:
        raise PlanError(
            "gradients of no samples cannot be averaged",
            where="average_gradients",
            received=f"{len(parts)} items with {total} samples",
            fix="leave items without samples out",
        )
    first = parts[0]
    for part in parts[1:]:
        for kind, mine, other in (("variables", first.values, part.values), ("metrics", first.metrics, part.metrics)):
            if mine.keys() != other.keys():
                raise PlanError(
                    f"gradients with different {kind} cannot be averaged",
                    where="average_gradients",
                    received=f"only in some: {sorted(mine.keys() ^ other.keys())}",
                    fix="average gradients of one loss, by agents of the same settings",
                )
    shares = [part.num_steps / total for part in parts]
    values = {}
    for path, value in first.values.items():
        summed = np.zeros(value.shape, np.float64)
        for share, part in zip(shares, parts, strict=True):
            summed += share * part.values[path]
        values[path] = summed.astype(value.dtype)
    metrics = {
        name: sum(share * float(part.metrics[name]) for share, part in zip(shares, parts, strict=True))
        for name in first.metrics
    }
    return Gradients(values, total, metrics)


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

    Raises:
        ConfigError: If ``microbatch_size`` is below 1.
    """

    def __init__(self, learner: ComputesGradients | None = None, microbatch_size: int | None = None) -> None:
        if learner is not None:
            require(learner, ComputesGradients, "compute_gradients", "learner")
        self.learner, self.microbatch_size = learner, microbatch_size
        if microbatch_size is not None:
            positive("microbatch_size", microbatch_size, "compute_gradients")

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
        """The gradients of the mean loss over one item, by one call for each part.

        Raises:
            PlanError: The item cannot be cut.
        """
        assert self.learner is not None
        if self.microbatch_size is None:
            computed: Gradients = self.learner.compute_gradients(batch)
            return computed
        return average([self.learner.compute_gradients(part) for part in parts_of(batch, self.microbatch_size)])

    def note(self) -> str:
        """Who computes, if it is a learner, and on how much at a time."""
        learner = "" if self.learner is None else type(self.learner).__name__
        size = "" if self.microbatch_size is None else f"microbatch_size={self.microbatch_size}"
        return ", ".join(filter(None, [learner, size]))


class AverageGradients(Operator):
    """Averages the gradients of a list of items, such as those of a round; each counts by its number of samples.

    The result is the gradient of the mean loss over all samples, as if they had been one batch::

        grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_sync()
        train = grads.batch_rounds().for_each(AverageGradients()).for_each(ApplyGradients(learner, workers))
    """

    def __call__(self, gradients: list[Gradients]) -> Gradients:
        """The average."""
        return average(gradients)

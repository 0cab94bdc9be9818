"""Micro-batches: gradients of an item that does not fit into memory at once, computed part by part."""

from __future__ import annotations

from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.gradients import Gradients, average
from rlweave.flow.item_types import positive
from rlweave.flow.protocols import ComputesGradients


class Microbatches:
    """How items are cut before gradients are computed of them.

    Args:
        size: Environment steps in a part, the last one possibly smaller; None leaves items whole.

    Raises:
        ConfigError: If the size is below 1.
    """

    def __init__(self, size: int | None) -> None:
        self.size = None if size is None else positive("microbatch_size", size, "compute_gradients")

    def gradients(self, learner: ComputesGradients, batch: Any) -> Gradients:
        """The gradients of the mean loss over an item, by one call of the learner for each part.

        Raises:
            PlanError: The item cannot be cut.
        """
        if self.size is None:
            computed: Gradients = learner.compute_gradients(batch)
            return computed
        return average([learner.compute_gradients(part) for part in parts_of(batch, self.size)])

    def note(self) -> str:
        """The size, if there is one."""
        return "" if self.size is None else f"microbatch_size={self.size}"


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

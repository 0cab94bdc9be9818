"""``ComputePriorities``: priorities of new items, found where they are made (Ape-X, Horgan et al. 2018)."""

from __future__ import annotations

from typing import Any, Protocol

from rlweave.flow.batch import SampleBatch
from rlweave.flow.operators import Operator
from rlweave.flow.protocols import require


class Prioritizing(Protocol):
    """A worker that can say how surprising its items are."""

    def compute_priorities(self, batch: SampleBatch) -> Any:
        """Sizes of the TD errors of all rows of a batch, float32 (N,), by the weights that the worker acts on."""
        ...


class ComputePriorities(Operator):
    """Adds ``"priorities"`` (N,) to each batch, beside the worker that made it: ``par_for_each(ComputePriorities())``.

    So a memory draws new items by what they are worth from the start, and the learner need not look at all of them.
    """

    def bind(self, worker: Any) -> None:
        """Takes the worker.

        Raises:
            PlanError: It cannot compute priorities.
        """
        require(worker, Prioritizing, "compute_priorities", "worker")
        self._worker: Prioritizing = worker

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        """The batch with priorities; one without rows as it is."""
        if not batch.data:
            return batch
        data = {**batch.data, "priorities": self._worker.compute_priorities(batch)}
        return SampleBatch(data, env_steps=batch.num_steps)

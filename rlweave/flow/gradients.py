"""Gradients as an item of a plan: what `ComputeGradients` makes, and `AverageGradients` and `ApplyGradients` take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.errors import PlanError
from rlweave.flow.codec import saved_as


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

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Gradients:
        """What ``state_dict`` described."""
        return cls(dict(state["values"]), int(state["num_steps"]), dict(state["metrics"]))


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

"""What one call of a learner's ``update`` did, as the item that `TrainOneStep` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlweave.flow.codec import saved_as


@saved_as("train_stats")
@dataclass(slots=True)
class TrainStats:
    """What one call of a learner's ``update`` did.

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

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TrainStats:
        """What ``state_dict`` described."""
        return cls(**state)

"""The events of a training: evaluations, checkpoints and reports, every so many environment steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.algorithms.config import TrainConfig
from rlweave.flow import Every


class Events:
    """When a training evaluates, saves and reports.

    Args:
        config: Settings of the training.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.evaluate, self.checkpoint = Every(config.evaluate_every), Every(config.checkpoint_every)
        self.report = Every(config.report_every)
        self._all = (self.evaluate, self.checkpoint, self.report)

    def is_due(self, steps: int) -> bool:
        """Whether one of them is due at so many environment steps."""
        return any(event.is_due(steps) for event in self._all)

    def next_after(self, steps: int) -> int:
        """The next number of environment steps at which one of them is due."""
        return min((steps // event.interval + 1) * event.interval for event in self._all if event.interval)

    def state_dict(self) -> list[dict[str, Any]]:
        """The events so far."""
        return [event.state_dict() for event in self._all]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Takes over what `state_dict` gave."""
        for event, kept in zip(self._all, state, strict=True):
            event.load_state_dict(kept)

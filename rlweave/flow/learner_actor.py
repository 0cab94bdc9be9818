"""A learner that lives in an actor of its own, so that the driver goes on while it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.item_types import signature_of
from rlweave.flow.protocols import Learner, require
from rlweave.flow.resources import Resources


class LearnerActor:
    """Says how a learner is made at the place where it is to live.

    Give it to `TrainOneStep` or `ApplyGradients` in place of a learner.

    Weights go from there to the workers without passing through the driver.

    Args:
        factory: Makes the learner; without arguments.
        resources: What it holds on a cluster while it lives.
    """

    def __init__(self, factory: Callable[[], Learner], resources: Resources | None = None) -> None:
        if not callable(factory) or (callable(getattr(factory, "update", None)) and not isinstance(factory, type)):
            raise PlanError(
                "LearnerActor makes its learner itself",
                where="LearnerActor, argument 'factory'",
                received=type(factory).__name__,
                fix="give a function without arguments that returns the learner",
            )
        self.factory = factory
        self.resources = resources or Resources()
        kind: Any = signature_of(factory).gives
        if kind is not Any:
            require(kind, Learner, "train_one_step", "learner")

"""A learner that lives in an actor of its own, so that the driver goes on while it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.item_types import check_arguments, positive, signature_of
from rlweave.flow.protocols import Learner, RestorableLearner, require
from rlweave.flow.resources import Resources


class LearnerActor:
    """Says how a learner is made at the place where it is to live.

    Give it to `TrainOneStep` or `ApplyGradients` in place of a learner.

    Weights go from there to the workers without passing through the driver.

    Args:
        factory: Makes the learner; without arguments.
        resources: What it holds on a cluster while it lives.
        save_every: Where ``on_error("replace")`` has it restarted after a failure: updates from one snapshot of its
            state, which the new one begins from, to the next. Such a learner has ``state_dict()`` and
            ``load_state_dict(state)``.
    """

    def __init__(
        self, factory: Callable[[], Learner], resources: Resources | None = None, save_every: int = 10
    ) -> None:
        if not callable(factory) or (callable(getattr(factory, "update", None)) and not isinstance(factory, type)):
            raise PlanError(
                "LearnerActor makes its learner itself",
                where="LearnerActor, argument 'factory'",
                received=type(factory).__name__,
                fix="give a function without arguments that returns the learner",
            )
        check_arguments(factory, 0, "LearnerActor", "a factory")
        self.factory = factory
        self.resources = resources or Resources()
        self.save_every = positive("save_every", save_every, "train_one_step")
        self.kind: Any = signature_of(factory).gives
        if self.kind is not Any:
            require(self.kind, Learner, "train_one_step", "learner")

    def check_restorable(self, operator: str) -> None:
        """Checks that the learner can be restarted from a state.

        Raises:
            PlanError: If its class lacks a method that this needs.
        """
        if self.kind is not Any:
            require(self.kind, RestorableLearner, operator, "learner")

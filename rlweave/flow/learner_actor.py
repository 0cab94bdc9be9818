"""A learner that lives in an actor of its own, so that the driver goes on while it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlweave.errors import PlanError
from rlweave.flow.calls import answers_of
from rlweave.flow.engine import ActorLost
from rlweave.flow.item_types import check_arguments, signature_of
from rlweave.flow.operators import positive
from rlweave.flow.protocols import Learner, RestorableLearner, require
from rlweave.flow.resources import Resources

if TYPE_CHECKING:
    from rlweave.flow.plan import ReportMetrics


class LearnerActor:
    """Says how a learner is made at the place where it is to live.

    Give it to `TrainOneStep` or `ApplyGradients` in place of a learner.

    Weights go from there to the workers without passing through the driver.

    Args:
        factory: Makes the learner; without arguments.
        resources: What it holds on a cluster while it lives.
        save_every: Where ``on_error("replace")`` has it made anew after a failure: updates from one snapshot of its
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
        """Checks that the learner can be made anew from a state.

        Raises:
            PlanError: If its class lacks a method that this needs.
        """
        if self.kind is not Any:
            require(self.kind, RestorableLearner, operator, "learner")


def ask_learner(plan: ReportMetrics, learner: LearnerActor, method: str, *arguments: Any) -> Any:
    """Calls a method of a learner that lives in an actor of a plan, and waits for the result.

    Calls of an actor are carried out in order, so an update that was begun before is done when this answers.

    Args:
        plan: The plan that trains it.
        learner: The learner.
        method: Name of its method.
        *arguments: Of the call.

    Returns:
        What the method returned.

    Raises:
        PlanError: If it raises, its actor is lost and not to be replaced, or there is no answer.
    """
    context = plan._running()
    record, operator = context.learner(learner), plan.graph.trainer_of(learner)

    def ask() -> Any:
        call = context.engine.call(record.actor, method, *arguments)
        return answers_of(context.engine, context.clock, [call], operator, method, ["the learner"])[0]

    try:
        return ask()
    except PlanError as error:
        if not isinstance(error.__cause__, ActorLost) or not record.replaceable:
            raise
    record.lost = True  # it died while nobody wanted anything of it
    plan.drain()
    return ask()

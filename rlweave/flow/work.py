"""``Work``: what an operator has that works on its items for it, where that takes more than their payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlweave.flow.engine import Call
from rlweave.flow.envelope import Envelope, Pulled

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.learner_actor import LearnerActor
    from rlweave.flow.node import Node
    from rlweave.flow.plan_graph import PlanGraph
    from rlweave.flow.protocols import Learner
    from rlweave.flow.workers import WorkerGroup


class Work:
    """The work of an operator on envelopes, with what it needs of the plan and what a checkpoint keeps of it.

    An operator that has one gives it to ``Operator.__init__``, which passes on what the plan asks of the operator, and
    says itself only what is worked on, and its item types. This one stands for none: there is nothing to do.
    """

    group: WorkerGroup | None = None
    """The workers that are sent something, if any."""
    trains: Learner | LearnerActor | None = None
    """The learner that works on the items, if one does."""
    learner_actor: LearnerActor | None = None
    """The same, if it lives in an actor: by ``begin`` and ``finish``."""

    def check_plan(self, node: Node, graph: PlanGraph) -> None:
        """Raises PlanError for what can be known to be wrong only when the whole plan is there."""

    def start(self, context: Context, name: str) -> None:
        """Gets ready on the driver, before the first item."""

    def admits(self, envelope: Envelope) -> bool:
        """Whether an item is to be worked on; asked once, right before. One that is not is dropped, and counted."""
        return True

    def process(self, envelope: Envelope) -> Pulled:
        """Works on an item in this process."""
        raise NotImplementedError(f"{type(self).__name__} does nothing in this process")

    def begin(self, envelope: Envelope) -> Call:
        """Starts the work on an item at an actor."""
        raise NotImplementedError(f"{type(self).__name__} has nothing to do at an actor")

    def finish(self, envelope: Envelope, result: Any) -> Pulled:
        """Makes an envelope of the result of the call that ``begin`` started."""
        raise NotImplementedError(f"{type(self).__name__} has nothing to do at an actor")

    def note(self) -> str:
        """Settings worth a line in ``explain``."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON-able data and arrays."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""

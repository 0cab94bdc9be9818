"""Which learners train on the items that an operator lets through: their updates are what counts for it."""

from __future__ import annotations

from collections.abc import Iterable

from rlweave.flow.context import Context
from rlweave.flow.envelope import UNKNOWN_VERSION, Envelope
from rlweave.flow.learner_actor import LearnerActor
from rlweave.flow.learner_record import LearnerRecord
from rlweave.flow.operator import Graph, Operator
from rlweave.flow.protocols import Learner


class LearnersBehind:
    """The learners that get the items of an operator; other learners of the plan are none of its business."""

    def __init__(self) -> None:
        self._learners: list[Learner | LearnerActor] = []
        self._context: Context | None = None

    def find(self, node: Operator, graph: Graph) -> None:
        """Looks for them below a node of a plan."""
        self._learners = graph.learners_behind(node)

    def start(self, context: Context) -> None:
        """Learns where updates are counted."""
        self._context = context

    def _records(self) -> list[LearnerRecord]:
        return [] if self._context is None else [self._context.learner(learner) for learner in self._learners]

    def updates(self) -> tuple[int, ...]:
        """Updates that each of them has made."""
        return tuple(record.updates for record in self._records())

    def weight_lags(self, envelope: Envelope, made_with: Iterable[tuple[int, tuple[int, ...]]]) -> list[int]:
        """How many updates old weights are that items were made with, of the learner that trains on them.

        Of several such learners, of the one that has made most since.

        Args:
            envelope: An item of the same workers.
            made_with: Version and versions of the weights of each item, as an envelope has them.

        Returns:
            The updates by item, those left out whose weights nobody knows; nothing where items come from no workers.
        """
        maker = None if self._context is None else self._context.worker_of(envelope.origins[0][0])
        if maker is None:
            return []
        channel = maker[0]
        own: list[LearnerRecord | None] = [record for record in self._records() if record in channel.learners]
        return [
            max(channel.lag(version, versions, record) for record in own or [None])
            for version, versions in made_with
            if version != UNKNOWN_VERSION  # samples of a memory
        ]

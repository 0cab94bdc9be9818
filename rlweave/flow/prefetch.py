"""``Prefetch``: items are made ready for a learner while it trains on earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.counters import LagHistogram
from rlweave.flow.envelope import ABSORBED, Envelope, Pulled
from rlweave.flow.item_types import Signature, check_arguments, positive
from rlweave.flow.learners_behind import LearnersBehind
from rlweave.flow.operator import Graph, Operator

Item = TypeVar("Item")


class Prefetch(Operator):
    """Holds n items back, each staged when it comes: copied to a device, say, while the learner is still busy.

    Order stays; at the end of a stream the last n follow. An item is n items old when it goes on: a sample of a
    memory does not see what was stored, or which priorities were set, in between. How many updates of the learner that
    trains on the items that were (of several, the one that made most) is counted in ``lags`` and reported as the metric
    ``<name>/lag``.

    Args:
        n: Items held back, at least 1.
        stage: Makes an item ready, as ``executor.stage`` does; what it returns goes on. Staging must not change
            anything else, as a resumed plan stages the items of its checkpoint again.

    Raises:
        ConfigError: If n is below 1.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, n: int, stage: Callable[[Any], Any]) -> None:
        check_arguments(stage, 1, "operator 'prefetch'", "stage")
        self.n, self.stage = positive("n", n, "prefetch"), stage
        self.lags = LagHistogram()
        #: (item as it came, what was made of it, updates of the learners behind at that time)
        self._kept: deque[tuple[Envelope, Any, tuple[int, ...]]] = deque()
        self._learners = LearnersBehind()

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def check(self, graph: Graph) -> None:
        """Finds who trains on the items."""
        self._learners.find(self, graph)

    def start(self, context: Context) -> None:
        """Learns where updates are counted."""
        self._learners.start(context)

    def process(self, envelope: Envelope) -> Pulled:
        """Stages the item, and lets the oldest go when there are more than n."""
        self._kept.append((envelope, self.stage(envelope.payload), self._learners.updates()))
        return self._release() if len(self._kept) > self.n else ABSORBED

    def _release(self) -> Envelope:
        envelope, staged, before = self._kept.popleft()
        lag = max((now - then for now, then in zip(self._learners.updates(), before, strict=True)), default=0)
        self.lags.add(lag)
        if self.add_metrics is not None:
            self.report(lag=lag)
        return envelope.carrying(staged)

    def flush(self) -> list[Envelope]:
        """The items still held back."""
        return [self._release() for _ in range(len(self._kept))]

    def note(self) -> str:
        """How many, and what makes them ready."""
        stage = getattr(self.stage, "__qualname__", type(self.stage).__name__)
        return f"n={self.n}, {stage}"

    def state_dict(self) -> dict[str, Any]:
        """The items as they came, the learner updates before each, and the lags so far."""
        return {
            "kept": encode([(envelope, updates) for envelope, _, updates in self._kept], self.name),
            "lags": self.lags.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state, and stages its items again."""
        self.lags.load_state_dict(state["lags"])
        kept = decode(state["kept"])
        self._kept = deque((envelope, self.stage(envelope.payload), updates) for envelope, updates in kept)

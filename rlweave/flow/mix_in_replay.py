"""``MixInReplay``: trajectories of earlier items are trained on again, beside those that have just come."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.errors import ConfigError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.item_types import Signature, positive
from rlweave.flow.learners_behind import LearnersBehind
from rlweave.flow.operator import Graph, Operator

MadeWith = tuple[int, tuple[int, ...]]


class MixInReplay(Operator):
    """Glues trajectories of a bounded buffer to every item (Espeholt et al. 2018, section 5.2.2).

    An item's own trajectories enter the buffer first, where the oldest make room; then trajectories are drawn from all
    that are in it, each equally likely, with replacement. So from the first item on all items have the same size
    (for a whole number of trajectories; else sizes that differ by one), and nothing is compiled twice for it.

    The item stays what it was otherwise: it counts the environment steps that are new in it (``num_steps``), and its
    weight version is theirs. How old the weights behind the replayed ones are is the metric ``<name>/lag``, the mean
    in updates of the learner that trains on the items (of several, the one that made most).

    Args:
        capacity: Trajectories that are kept.
        proportion: Replayed trajectories for each new one, above 0; 1.0 trains on half old, half new.
        seed: Of the draws.

    Raises:
        ConfigError: An argument is out of range.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, capacity: int, proportion: float, seed: int = 0) -> None:
        self.capacity = positive("capacity", capacity, "mix_in_replay")
        if not proportion > 0:
            raise ConfigError(
                "proportion must be above 0",
                where="operator 'mix_in_replay'",
                received=repr(proportion),
                fix="give the replayed trajectories for each new one, or leave the operator out",
            )
        self.proportion, self.seed = float(proportion), seed
        #: One trajectory each, (T, 1, ...), and the weights it was made with: version and versions, as envelopes have.
        self._kept: deque[tuple[SampleBatch, MadeWith]] = deque(maxlen=capacity)
        self._learners = LearnersBehind()
        self._items = 0
        self._owed = 0.0

    def signature(self) -> Signature:
        """Takes and gives batches."""
        return Signature(SampleBatch, SampleBatch)

    def check(self, graph: Graph) -> None:
        """Finds who trains on the items."""
        self._learners.find(self, graph)

    def start(self, context: Context) -> None:
        """Learns where updates are counted."""
        self._learners.start(context)

    def process(self, envelope: Envelope) -> Pulled:
        """Keeps the item's trajectories, and glues others to it.

        Raises:
            ConfigError: The item is no batch of trajectories.
        """
        fresh: SampleBatch = envelope.payload
        if fresh.layout != "trajectories":
            raise ConfigError(
                "only trajectories can be mixed in",
                where=f"operator {self.name!r}",
                received=repr(fresh),
                fix="give batches in layout 'trajectories', or use Replay(memory)",
            )
        steps, columns = fresh.leading
        for column in range(columns):
            trajectory = fresh.slice(column, column + 1).copy()
            self._kept.append((trajectory, (envelope.weight_version, envelope.versions)))
        self._owed += self.proportion * columns
        number, self._items = int(self._owed), self._items + 1
        self._owed -= number
        if not number:
            return envelope
        # a generator for each item: the number of items is all of its state
        chosen = np.random.default_rng((self.seed, self._items)).integers(len(self._kept), size=number)
        replayed = [self._kept[index] for index in chosen]
        lags = self._learners.weight_lags(envelope, [made_with for _, made_with in replayed])
        if lags and self.add_metrics is not None:
            self.report(lag=float(np.mean(lags)))
        mixed = SampleBatch.concat([fresh, *(batch for batch, _ in replayed)])
        return envelope.carrying(SampleBatch(mixed.data, mixed.layout, mixed.per_trajectory, steps * columns))

    def note(self) -> str:
        """Settings."""
        return f"capacity={self.capacity}, proportion={self.proportion:g}"

    def state_dict(self) -> dict[str, Any]:
        """The trajectories, glued together, and where the draws are."""
        batches = [batch for batch, _ in self._kept]
        return {
            "kept": encode(SampleBatch.concat(batches), self.name) if batches else None,
            "made_with": encode([made_with for _, made_with in self._kept], self.name),
            "items": self._items,
            "owed": self._owed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._items, self._owed = int(state["items"]), float(state["owed"])
        self._kept.clear()
        if state["kept"] is not None:
            kept = decode(state["kept"])
            for column, made_with in enumerate(decode(state["made_with"])):
                self._kept.append((kept.slice(column, column + 1).copy(), made_with))

"""Operators that keep items for the learner behind them: to stage them, or to train on them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from rlweave.errors import ConfigError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.counters import LagHistogram
from rlweave.flow.envelope import ABSORBED, UNKNOWN_VERSION, Envelope, Pulled
from rlweave.flow.item_types import Signature, check_arguments, positive
from rlweave.flow.learner import LearnerActor, LearnerRecord
from rlweave.flow.operator import Graph, Operator
from rlweave.flow.protocols import Learner


class KeepsItems(Operator):
    """Base of operators that keep items for the learners behind them, and measure how old these get."""

    at_source: ClassVar[bool] = False
    _learners: Sequence[Learner | LearnerActor] = ()
    _shared: Context | None = None

    def check(self, graph: Graph) -> None:
        """Finds the learners that train on the items."""
        self._learners = graph.learners_behind(self)

    def start(self, context: Context) -> None:
        """Gets the records that count the learners' updates."""
        self._shared = context

    def _records(self) -> list[LearnerRecord]:
        return [] if self._shared is None else [self._shared.learner(learner) for learner in self._learners]

    def updates(self) -> tuple[int, ...]:
        """The number of updates of each of these learners."""
        return tuple(record.updates for record in self._records())

    def weight_lags(self, envelope: Envelope, made_with: Iterable[tuple[int, tuple[int, ...]]]) -> list[int]:
        """The weight lag of items, in updates of the learner that trains on them.

        Of several such learners, the greatest lag.

        Args:
            envelope: An item of the same workers.
            made_with: Version and versions of the weights of each item, as an envelope has them.

        Returns:
            The lag of each item whose weights are known; nothing if items come from no workers.
        """
        maker = None if self._shared is None else self._shared.worker_of(envelope.origins[0][0])
        if maker is None:
            return []
        channel = maker[0]
        own: list[LearnerRecord | None] = [record for record in self._records() if record in channel.learners]
        return [
            max(channel.lag(version, versions, record) for record in own or [None])
            for version, versions in made_with
            if version != UNKNOWN_VERSION  # samples of a memory
        ]


Item = TypeVar("Item")


class Prefetch(KeepsItems):
    """Holds n items back, each staged when it arrives: copied to a device, say, while the learner is still busy.

    Order stays; at the end of a stream the last n follow. An item is n items old when it goes on: a sample of a
    memory does not see what was stored, or which priorities were set, in between. The updates that the learner behind
    it made meanwhile (of several learners, the most) are counted in ``lags`` and reported as the metric ``<name>/lag``.

    Args:
        n: Items held back, at least 1.
        stage: Makes an item ready, as ``executor.stage`` does; what it returns goes on. Staging must not change
            anything else, as a resumed plan stages the items of its checkpoint again.

    Raises:
        ConfigError: If n is below 1.
    """

    def __init__(self, n: int, stage: Callable[[Any], Any]) -> None:
        check_arguments(stage, 1, "operator 'prefetch'", "stage")
        self.n, self.stage = positive("n", n, "prefetch"), stage
        self.lags = LagHistogram()
        #: (item as it came, what was made of it, updates of the learners behind at that time)
        self._kept: deque[tuple[Envelope, Any, tuple[int, ...]]] = deque()

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def process(self, envelope: Envelope) -> Pulled:
        """Stages the item, and lets the oldest go when there are more than n."""
        self._kept.append((envelope, self.stage(envelope.payload), self.updates()))
        return self._release() if len(self._kept) > self.n else ABSORBED

    def _release(self) -> Envelope:
        envelope, staged, before = self._kept.popleft()
        lag = max((now - then for now, then in zip(self.updates(), before, strict=True)), default=0)
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


MadeWith = tuple[int, tuple[int, ...]]


class MixInReplay(KeepsItems):
    """Appends trajectories from a bounded buffer to every item (Espeholt et al. 2018, section 5.2.2).

    An item's own trajectories replace the oldest in the buffer first; then trajectories are drawn from all
    that are in it, each equally likely, with replacement. So from the first item on all items have the same size
    (for a whole number of trajectories; else sizes that differ by one), and nothing is compiled twice for it.

    The item keeps its meaning: it counts the environment steps that are new in it (``num_steps``), and its
    weight version is theirs. The weight lag of the replayed ones is the metric ``<name>/lag``, the mean
    in updates of the learner that trains on the items (of several, the one that made most).

    Args:
        capacity: Trajectories that are kept.
        proportion: Replayed trajectories for each new one, above 0; 1.0 trains on half old, half new.
        seed: Of the draws.

    Raises:
        ConfigError: An argument is out of range.
    """

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
        self._items = 0
        self._owed = 0.0

    def signature(self) -> Signature:
        """Takes and gives batches."""
        return Signature(SampleBatch, SampleBatch)

    def process(self, envelope: Envelope) -> Pulled:
        """Keeps the item's trajectories, and appends replayed ones to it.

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
        lags = self.weight_lags(envelope, [made_with for _, made_with in replayed])
        if lags and self.add_metrics is not None:
            self.report(lag=float(np.mean(lags)))
        mixed = SampleBatch.concat([fresh, *(batch for batch, _ in replayed)])
        return envelope.carrying(SampleBatch(mixed.data, mixed.layout, mixed.per_trajectory, steps * columns))

    def note(self) -> str:
        """Settings."""
        return f"capacity={self.capacity}, proportion={self.proportion:g}"

    def state_dict(self) -> dict[str, Any]:
        """The trajectories as one batch, and the state of the draws."""
        batches = [batch for batch, _ in self._kept]
        return {
            "kept": encode(SampleBatch.concat(batches), self.name, copy=False) if batches else None,
            "made_with": encode([made_with for _, made_with in self._kept], self.name),
            "items": self._items,
            "owed": self._owed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._items, self._owed = int(state["items"]), float(state["owed"])
        self._kept.clear()
        if state["kept"] is not None:
            kept = decode(state["kept"], copy=False)  # each trajectory is copied below, and never written to
            for column, made_with in enumerate(decode(state["made_with"])):
                self._kept.append((kept.slice(column, column + 1).copy(), made_with))

"""Operators on replay memories: storing, priorities, and the rate limiter that holds the replay ratio."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from rlweave.errors import ConfigError, PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.context import Context
from rlweave.flow.engine import Call
from rlweave.flow.envelope import END, NOT_READY, Envelope, HeldBatch, Pulled, Signal
from rlweave.flow.item_types import Signature
from rlweave.flow.learner import TrainStats
from rlweave.flow.operator import Graph, Operator, Port, check_input
from rlweave.flow.protocols import BatchType, Memory, PrioritizedMemory, require, steps_of
from rlweave.flow.shards import ReplayShards, ShardRecord
from rlweave.flow.sources import ReplaySource, ShardSource


class StoreToBuffer(Operator):
    """Stores each item into a memory and passes it on.

    Shards of a memory get items in turns. They also take references to items (``gather_async(by_reference=True)``),
    and fetch the items from the actors that made them.
    """

    at_source: ClassVar[bool] = False
    may_wait: ClassVar[bool] = True
    state = ("inserted",)

    def __init__(self, memory: Memory | ReplayShards) -> None:
        self.memory = self.fills = memory
        if isinstance(memory, ReplayShards):
            self.sends_to = memory
        else:
            require(memory, Memory, "store_to_buffer", "memory")
        self.inserted = 0
        """Environment steps stored so far."""
        self._shards: ShardRecord | None = None

    def start(self, context: Context) -> None:
        """Finds the shards, if the memory has some."""
        if isinstance(self.memory, ReplayShards):
            self._shards = context.shards(self.memory)
            self.gates.append(self._shards.may_store)

    def signature(self) -> Signature:
        """What goes in comes out."""
        takes = BatchType if self.sends_to is None else HeldBatch
        return Signature(takes, takes)

    def __call__(self, batch: Any) -> Any:
        """Stores the batch."""
        if self._shards is not None:
            self._shards.store(batch, self.name)
        else:
            assert not isinstance(self.memory, ReplayShards)
            self.memory.insert(batch)
        self.inserted += steps_of(batch)
        return batch

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """No messages beside the items that it stores, which ``fills`` shows."""
        return []

    def note(self) -> str:
        """The memory."""
        return f"{len(self.sends_to)} shards" if self.sends_to is not None else type(self.memory).__name__

    def waits_on(self) -> Iterator[Call]:
        """Pending inserts, if the next one has to wait for them."""
        return iter(()) if self._shards is None else self._shards.waits_on()

    def obstacle(self) -> str:
        """Why no shard takes another item."""
        if self._shards is not None and not self._shards.may_store():
            return "the actors that it gives items to take no more now"
        return super().obstacle()


class UpdatePriorities(Operator):
    """Gives a memory the priorities that a learner found for the items it trained on; passes the statistics on.

    The slides' Ape-X updates priorities before it trains; here training comes first, because there are no TD errors
    before it.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, memory: PrioritizedMemory | ReplayShards) -> None:
        self.memory = memory
        if isinstance(memory, ReplayShards):
            self.sends_to = memory
        else:
            require(memory, PrioritizedMemory, "update_priorities", "memory")

    def process(self, envelope: Envelope) -> Pulled:
        """Updates the memory; of several shards the one that the item came from, as its envelope says.

        Raises:
            PlanError: If the item does not come from exactly one of the shards.
        """
        if not isinstance(self.memory, ReplayShards):
            return super().process(envelope)
        channel, index = self._context.worker_of(envelope.origins[0][0]) or (None, 0)
        if channel is not self._context.channel(self.memory) or len(envelope.origins) > 1:
            raise PlanError(
                "priorities go back to the shard of a sample, but this item does not come from one shard",
                where="operator 'update_priorities'",
                received=envelope.describe(),
                fix="train on the items of ParallelReplay(shards) one by one, with the same shards",
            )
        self._context.shards(self.memory).update_priorities(index, *self._priorities(envelope.payload))
        return envelope

    def __call__(self, stats: TrainStats) -> TrainStats:
        """Updates the memory.

        Raises:
            PlanError: If the learner gave no priorities.
        """
        assert not isinstance(self.memory, ReplayShards)
        self.memory.update_priorities(*self._priorities(stats))
        return stats

    def _priorities(self, stats: TrainStats) -> tuple[Any, Any]:
        if stats.priorities is None:
            raise PlanError(
                "the learner gave no priorities",
                where="operator 'update_priorities'",
                received=f"metrics {sorted(stats.metrics)}",
                fix="let Learner.update return 'priorities': (indices, priorities), or use a memory without priorities",
            )
        return stats.priorities

    def check(self, graph: Graph) -> None:
        """The items must have come from this memory: indices into another one mean nothing there."""
        replays = [above for above in graph.ancestors(self) if above.draws_from is not None]
        if replays and all(replay.draws_from is not self.memory for replay in replays):
            raise PlanError(
                f"the priorities of {self.name!r} would go to a memory that its items do not come from",
                where=f"operators {replays[0].name!r} and {self.name!r}",
                received=f"samples of one {type(replays[0].draws_from).__name__}, priorities for "
                f"another {type(self.memory).__name__}",
                fix="give both the same memory object",
            )

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Priorities, at once."""
        return [(self.memory, "priorities", "1", "block")]


class Prioritizing(Protocol):
    """The protocol of workers that compute initial priorities."""

    def compute_priorities(self, batch: SampleBatch) -> Any:
        """Sizes of the TD errors of all rows of a batch, float32 (N,), by the weights that the worker acts on."""
        ...


class ComputePriorities(Operator):
    """Adds ``"priorities"`` (N,) to each batch, beside the worker that made it: ``par_for_each(ComputePriorities())``.

    So new items are sampled by their TD errors from the start, and the learner need not see all of them first.
    """

    def bind(self, worker: Any) -> None:
        """Takes the worker.

        Raises:
            PlanError: It cannot compute priorities.
        """
        require(worker, Prioritizing, "compute_priorities", "worker")
        self._worker: Prioritizing = worker

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        """The batch with priorities; one without rows as it is."""
        if not batch.data:
            return batch
        data = {**batch.data, "priorities": self._worker.compute_priorities(batch)}
        return SampleBatch(data, env_steps=batch.num_steps)


class RateLimit(Operator):
    """Lets ``samples_per_insert`` samples out of a memory for each environment step stored into it.

    The idea and the names are Reverb's (`reverb.rate_limiters.SampleToInsertRatio`). With I steps stored and S samples
    taken, ``owed = samples_per_insert * (I - min_size) - S``. A sample of b items waits until b are owed; storing waits
    while b or more are owed, so that neither side runs away. ``error_buffer`` lets each side be ahead of the other
    by that many samples, which helps if both run at the same time.

    It stands anywhere downstream of the memory's ``Replay``, also behind the training operator, and holds back all
    in between. (At a ``ParallelReplay``, which requests samples ahead, it holds back the requests.) It finds by
    itself which operators store into the memory.

    Args:
        upstream: A stream with a ``Replay`` somewhere above it.
        samples_per_insert: Samples per stored environment step.
        min_size: Stored environment steps before the first sample.
        error_buffer: Slack in samples, to both sides.
    """

    on_error_choices = ()

    def __init__(self, upstream: Port, samples_per_insert: float, min_size: int, error_buffer: float) -> None:
        check_input(upstream, "rate_limit")
        if min_size < 1 or error_buffer < 0:
            raise ConfigError(
                "min_size must be at least 1, and error_buffer not negative",
                where="rate_limit",
                received=f"min_size={min_size}, error_buffer={error_buffer}",
            )
        self.enter([upstream], "rate_limit")
        self.samples_per_insert, self.min_size, self.error_buffer = samples_per_insert, min_size, error_buffer
        self.outputs = [Port(self, 0, upstream.item_type)]
        self._replays: list[ReplaySource | ShardSource] = []
        self._stores: list[Any] = []
        self._asks_ahead = False

    def check(self, graph: Graph) -> None:
        """Finds the memory and the operators that store into it, and refuses limits that never open."""
        self._replays = [node for node in graph.ancestors(self) if isinstance(node, ReplaySource | ShardSource)]
        memories: dict[int, Any] = {id(replay.draws_from): replay.draws_from for replay in self._replays}
        self._stores = [store for memory in memories.values() for store in graph.stores_into(memory)]
        capacities = [getattr(memory, "capacity", None) for memory in memories.values()]
        known = [capacity for capacity in capacities if capacity is not None]
        above = self.inputs[0].node.name
        problem, fix = "", ""
        if not 0 < self.samples_per_insert < math.inf:
            # with infinitely many samples owed, inserts could never go on
            problem = f"samples_per_insert is {self.samples_per_insert}"
            fix = "use a finite number above 0"
        elif not self._replays:
            problem = f"{above!r} does not get its items from a memory, so there is nothing to count"
            fix = "put it behind Replay(memory)"
        elif not self._stores:
            problem = "nothing in the plan stores into its memory, so no insert is ever counted"
            fix = "give the plan a branch that ends in StoreToBuffer(memory), or leave the rate limiter out"
        elif all(self in graph.ancestors(store) for store in self._stores):
            problem = f"only {self._stores[0].name!r} stores into its memory, which itself waits for the rate limiter"
            fix = "store in a branch of its own, and join both by Union"
        elif known and self.min_size > sum(known):
            problem = f"min_size {self.min_size} is above the memory's capacity {sum(known)}"
            fix = "lower min_size, or use a larger memory"
        if problem:
            raise PlanError(
                f"the rate limiter {self.name!r} behind {above!r} can never open",
                where=f"operators {above!r} and {self.name!r}",
                received=problem,
                fix=fix,
            )
        for replay in self._replays:
            replay.limited = True
            if isinstance(replay, ShardSource):  # requests ahead, and counts its requests
                replay.permit, self._asks_ahead = self.may_sample, True
        for store in self._stores:
            store.gates.append(self.may_insert)

    def inserted(self) -> int:
        """Environment steps stored so far."""
        inserted = 0
        for store in self._stores:  # a loop, here and below: a generator costs more, and this runs for every item
            inserted += store.inserted
        return inserted

    def sampled(self) -> int:
        """Samples taken so far."""
        sampled = 0
        for replay in self._replays:
            sampled += replay.sampled
        return sampled

    def owed(self) -> float:
        """Samples that may still be taken for the steps that were stored."""
        return self.samples_per_insert * (self.inserted() - self.min_size) - self.sampled()

    def missing(self) -> int:
        """Environment steps that must still be stored before the next sample, if the memory can serve it then.

        Exactly so many, however `owed` is rounded: a source that stores as many at once changes nothing.
        """
        owed, size = self._owed_and_asked()
        slack, ratio = self.error_buffer, self.samples_per_insert
        beyond, sampled = self.inserted() - self.min_size, self.sampled()
        least = -beyond if beyond < 0 else 0
        more = max(math.ceil((size - slack - owed) / ratio), least)
        while ratio * (beyond + more) - sampled + slack < size:
            more += 1
        while more > least and ratio * (beyond + more - 1) - sampled + slack >= size:
            more -= 1
        return more

    def _owed_and_asked(self) -> tuple[float, int]:
        """Samples owed, and the size of the next sample: in one call, as each counts for every item."""
        inserted, sampled, size = 0, 0, 1
        for store in self._stores:
            inserted += store.inserted
        for replay in self._replays:
            sampled += replay.sampled
            size = max(size, replay.next_size())
        return self.samples_per_insert * (inserted - self.min_size) - sampled, size

    def _open(self) -> bool:
        if self.inserted() < self.min_size:
            return False
        for replay in self._replays:  # noqa: SIM110 - as above
            if not replay.ready():
                return False
        return True

    def may_sample(self) -> bool:
        """Whether another sample may be taken."""
        owed, size = self._owed_and_asked()
        return owed + self.error_buffer >= size and self._open()

    def may_insert(self) -> bool:
        """Whether storing may go on."""
        owed, size = self._owed_and_asked()
        return self.ended or owed - self.error_buffer < size or not self._open()

    def pull(self, output: int = 0) -> Pulled:
        """An item from upstream when enough is owed; END when there will never be enough."""
        if not self.may_sample():
            if all(store.ended for store in self._stores):
                # no more will be owed: the memory's stream ends, and operators in between flush their items
                for replay in self._replays:
                    replay.limited = False
            elif not self._asks_ahead:
                return NOT_READY
        item = self.take()
        if isinstance(item, Signal):
            self.ended = item is END
        else:
            self.timer.items += 1
        return item

    def measures(self) -> dict[str, float]:
        """Samples taken per step stored beyond ``min_size``."""
        beyond = self.inserted() - self.min_size
        return {"samples_per_insert": self.sampled() / beyond} if beyond > 0 else {}

    def obstacle(self) -> str:
        """The number of samples that are missing."""
        if self.may_sample():
            return ""
        return f"{self.inserted()} steps stored (min_size {self.min_size}), {self.owed():g} samples owed"

    def note(self) -> str:
        """Settings."""
        slack = f", error_buffer={self.error_buffer:g}" if self.error_buffer else ""
        return f"samples_per_insert={self.samples_per_insert:g}, min_size={self.min_size}{slack}"

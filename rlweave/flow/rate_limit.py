"""The rate limiter: the replay ratio is a setting, not an accident of which branch is faster."""

from __future__ import annotations

import math
from typing import Any, cast

from rlweave.errors import ConfigError, PlanError
from rlweave.flow.envelope import END, NOT_READY, Pulled, Signal
from rlweave.flow.operator import Graph, Operator, Port, check_input
from rlweave.flow.shard_source import ShardSource
from rlweave.flow.sources import ReplaySource


class RateLimit(Operator):
    """Lets ``samples_per_insert`` samples out of a memory for each environment step stored into it.

    The idea and the names are Reverb's (`reverb.rate_limiters.SampleToInsertRatio`). With I steps stored and S samples
    taken, ``owed = samples_per_insert * (I - min_size) - S``. A sample of b items waits until b are owed; storing waits
    while b or more are owed, so that neither side can run away. ``error_buffer`` lets each side go ahead of the other
    by that many samples, which is wanted where both run at the same time.

    It stands anywhere downstream of the memory's ``Replay``, also behind the training operator, and holds back all
    that is between. (Of a ``ParallelReplay``, which asks for samples ahead, it holds back the asking.) It finds what
    stores into the memory by itself.

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
        self.connect()
        self.outputs = [Port(self, 0, upstream.item_type)]
        self._replays: list[ReplaySource | ShardSource] = []
        self._stores: list[Operator] = []
        self._asks_ahead = False

    def check(self, graph: Graph) -> None:
        """Finds the memory and what stores into it, and refuses what can never open."""
        self._replays = [node for node in graph.ancestors(self) if isinstance(node, ReplaySource | ShardSource)]
        memories: dict[int, Any] = {id(replay.draws_from): replay.draws_from for replay in self._replays}
        self._stores = [store for memory in memories.values() for store in graph.stores_into(memory)]
        capacities = [getattr(memory, "capacity", None) for memory in memories.values()]
        known = [capacity for capacity in capacities if capacity is not None]
        above = self.inputs[0].node.name
        problem, fix = "", ""
        if not 0 < self.samples_per_insert < math.inf:
            # with infinitely many samples owed it is the inserts that could never go on
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
            if isinstance(replay, ShardSource):  # asks ahead, and counts what it asks for
                replay.permit, self._asks_ahead = self.may_sample, True
        for store in self._stores:
            store.gates.append(self.may_insert)

    def inserted(self) -> int:
        """Environment steps stored so far."""
        return sum(int(cast(Any, store).inserted) for store in self._stores)

    def sampled(self) -> int:
        """Samples taken so far."""
        return sum(replay.sampled for replay in self._replays)

    def owed(self) -> float:
        """Samples that may still be taken for what was stored."""
        return self.samples_per_insert * (self.inserted() - self.min_size) - self.sampled()

    def _next_size(self) -> int:
        return max(1, *(replay.next_size() for replay in self._replays)) if self._replays else 1

    def _open(self) -> bool:
        return self.inserted() >= self.min_size and all(replay.ready() for replay in self._replays)

    def may_sample(self) -> bool:
        """Whether enough is owed for another sample."""
        return self._open() and self.owed() + self.error_buffer >= self._next_size()

    def may_insert(self) -> bool:
        """Whether storing may go on."""
        return self.ended or not self._open() or self.owed() - self.error_buffer < self._next_size()

    def pull(self, output: int = 0) -> Pulled:
        """An item from upstream when enough is owed; the end when no more will ever be."""
        if not self.may_sample():
            if all(store.ended for store in self._stores):
                # nothing more will be owed: the memory's stream ends, and what operators on the way hold comes out
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
        """How much is missing."""
        if self.may_sample():
            return ""
        return f"{self.inserted()} steps stored (min_size {self.min_size}), {self.owed():g} samples owed"

    def note(self) -> str:
        """Settings."""
        slack = f", error_buffer={self.error_buffer:g}" if self.error_buffer else ""
        return f"samples_per_insert={self.samples_per_insert:g}, min_size={self.min_size}{slack}"

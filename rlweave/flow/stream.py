"""Streams: how plans are written. A stream is a handle on one output of the graph; methods add operators to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from rlweave.errors import ConfigError, PlanError
from rlweave.flow.branching import Queue, Split, Unite
from rlweave.flow.gather_modes import GatherAsync, GatherSync, WhenOld
from rlweave.flow.operator import Operator, Port
from rlweave.flow.protocols import Memory
from rlweave.flow.replay import RateLimit
from rlweave.flow.shards import ReplayShards
from rlweave.flow.sources import ReplaySource, RolloutSource, ShardSource
from rlweave.flow.supervision import FailureRule, OnError
from rlweave.flow.transforms import (
    BatchItems,
    BatchRounds,
    ConcatBatches,
    FilterItems,
    Flatten,
    SelectPolicy,
    as_operator,
)
from rlweave.flow.upstream import Notify, Reply, receiver_of
from rlweave.flow.workers import WorkerGroup, Workers


class Stream:
    """A stream of items. Every method makes a new stream; composing runs nothing.

    A stream is *parallel* while its items are still at their sources; then it takes only ``par_for_each``,
    ``gather_sync``, ``gather_async`` and ``split``.

    All methods raise `PlanError` at once, naming both operators and their types, if items do not fit, a gather is
    missing, or this stream has a consumer already.
    """

    def __init__(self, port: Port) -> None:
        self.port = port

    @property
    def item_type(self) -> Any:
        """Type of the items, as far as it is annotated."""
        return self.port.item_type

    def __repr__(self) -> str:
        return f"<stream of {self.port.describe()}>"

    def named(self, name: str) -> Stream:
        """Gives the operator that makes this stream a name, and returns the same stream.

        Raises:
            ConfigError: If the name is empty or contains a slash.
        """
        if not name or "/" in name:
            raise ConfigError("an operator's name must not be empty or contain '/'", where="named", received=repr(name))
        node = self.port.node
        node.base_name = node.name = name
        node.named_by_user = True
        return self

    def on_error(
        self,
        rule: OnError,
        timeout: float = 600.0,
        attempts: int = 5,
        first_delay: float = 0.1,
        longest_delay: float = 10.0,
    ) -> Stream:
        """Sets what happens when the operator that makes this stream fails; returns the same stream.

        Without it, a failure stops the plan. Failures after which the plan goes on are counted, and reported.

        Args:
            rule: ``"skip"`` leaves out the item at hand. ``"replace"`` restarts the actor in place: counters,
                buffers, learner and the other branches go on, its pending items are lost and counted, and the new one
                gets the newest weights, and ``replacing(number)`` if it has that, before its first item. An operator at
                the workers follows the rule of their source unless it has its own.
            timeout: Seconds that an actor may take for one call before it counts as hanging.
            attempts: Failures in a row, without an item, after which an actor is given up. When all are, the plan ends
                with the last failure.
            first_delay: Seconds before an actor is replaced; doubled with each failure in a row.
            longest_delay: Upper bound of the doubled delay.

        Raises:
            ConfigError: If the settings are wrong.
            PlanError: If the operator cannot follow this rule.
        """
        node = self.port.node
        if rule not in node.on_error_choices:
            raise PlanError(
                f"{node.name!r} cannot follow the failure rule {rule!r}",
                where=f"operator {node.name!r}",
                received=f"rule {rule!r}; it takes {', '.join(node.on_error_choices) or 'none'}",
                fix="call on_error() on rollouts ('stop', 'skip', 'replace') or behind for_each ('stop', 'skip')",
            )
        node.failure_rule = FailureRule(rule, timeout, attempts, first_delay, longest_delay)
        return self

    def par_for_each(self, operator: Operator | Callable[[Any], Any]) -> Stream:
        """Puts every item through an operator that runs at its source, in a copy of its own for each source."""
        return Stream(as_operator(operator).behind(self.port, at_workers=True))

    def gather_sync(self, quorum: int | None = None, timeout: float | None = None) -> Stream:
        """Fetches one item per source in every round, as a barrier, in the order of the sources.

        A source that is over, or whose actor is given up (see ``on_error``), leaves the rounds: they get smaller.
        `batch_rounds` makes a list of each.

        Args:
            quorum: Sources that are enough for a round once ``timeout`` is over; None waits for all. Late items come
                in a later round, marked by ``rounds_late``.
            timeout: Seconds that a round waits for all.
        """
        return Stream(GatherSync(self.port, quorum=quorum, timeout=timeout).outputs[0])

    def gather_async(
        self,
        num_async: int = 1,
        max_lag: int | None = None,
        when_old: WhenOld = "drop",
        by_reference: bool = False,
    ) -> Stream:
        """Fetches items as they come.

        Args:
            num_async: Calls per source that are started ahead.
            max_lag: Most weight versions that an item is old when it leaves here, of whichever learner has gone
                furthest, and when a learner trains on it, of that learner; None sets no bound. An item that is too old
                is dropped, and counted as a drop of the operator that it came to: this one, or the one that trains. A
                merged item is as old as its oldest part. What a memory gives out again, on purpose, has no bound.
            when_old: ``"drop"`` only drops; ``"wait"`` also holds faster sources back, so that less gets too old here.
            by_reference: Leaves items where they are made, and passes an `ItemReference` on for each: an actor that
                gets it, as a shard does from `StoreToBuffer`, has the item from there, and it never comes here.
        """
        return Stream(GatherAsync(self.port, num_async, max_lag, when_old, by_reference).outputs[0])

    def for_each(self, operator: Operator | Callable[[Any], Any]) -> Stream:
        """Puts every item through an operator, in order."""
        return Stream(as_operator(operator).behind(self.port))

    def filter(self, predicate: Callable[[Any], bool]) -> Stream:
        """Passes only the items for which the predicate holds."""
        return self.for_each(FilterItems(predicate))

    def batch(self, n: int) -> Stream:
        """Makes lists of n items; the last one may be shorter.

        It counts items, not rounds: behind a ``gather_sync``, lists of whole rounds are what `batch_rounds`
        makes.
        """
        return self.for_each(BatchItems(n))

    def batch_rounds(self) -> Stream:
        """Collects each round of the ``gather_sync`` above into a list, even when workers are missing.

        Without failures a list has an item of each source. It has fewer where a source is over or given up, or an
        operator in between skipped an item. With a quorum, it also has the late items that came in this round.

        Raises:
            PlanError: Items do not come in rounds here, or were merged or split up before.
        """
        return Stream(BatchRounds(self.port).outputs[0])

    def concat(self, min_steps: int) -> Stream:
        """Glues batches together until they have ``min_steps`` environment steps."""
        return self.for_each(ConcatBatches(min_steps))

    def flatten(self) -> Stream:
        """Takes lists apart."""
        return Stream(Flatten(self.port).outputs[0])

    def select(self, policy: str) -> Stream:
        """Takes one policy's part of items that are mappings by policy name."""
        return self.for_each(SelectPolicy(policy))

    def rate_limit(self, samples_per_insert: float, min_size: int = 1, error_buffer: float = 0.0) -> Stream:
        """Holds the replay ratio of the memory above: see `rlweave.flow.replay.RateLimit`.

        Args:
            samples_per_insert: Samples trained on per environment step stored.
            min_size: Environment steps stored before the first sample.
            error_buffer: Samples by which either side may be ahead of the other.
        """
        return Stream(RateLimit(self.port, samples_per_insert, min_size, error_buffer).outputs[0])

    def split(self, n: int = 2, capacity: int = 1) -> tuple[Stream, ...]:
        """Gives every item to each of n streams. On a parallel stream, gathers synchronously first.

        Args:
            n: Number of streams.
            capacity: Items by which one branch may be ahead of another, before it has to wait.
        """
        stream = self.gather_sync() if self.port.parallel else self
        return tuple(Stream(port) for port in Split(stream.port, n, capacity).outputs)

    def queue(self, capacity: int, policy: Literal["block", "drop_oldest", "drop_newest"] = "block") -> Stream:
        """Puts a bounded queue here, so that upstream goes on while downstream is busy. Drops are counted."""
        return Stream(Queue(self.port, capacity, policy).outputs[0])

    def notify(
        self,
        upstream: Stream | Workers | Any,
        method: str,
        every: int = 1,
        message: Callable[[Any], Any] | None = None,
        capacity: int = 8,
    ) -> Stream:
        """Sends a message upstream with every n-th item: weights, priorities.

        The receivers' method is called as ``method(message, version)``; version is the number of learner updates so
        far. All receivers see a message before the next item is asked of them.

        Args:
            upstream: A stream (its workers or memory get the message), workers, or any object.
            method: Name of the receivers' method.
            every: Items from one message to the next.
            message: Makes the message of an item; by default the item itself.
            capacity: Messages that may be under way to a worker that is busy, and that may wait for it beside. The
                newest stay; dropped ones are counted as drops of this operator.
        """
        target = receiver_of(upstream.port.node) if isinstance(upstream, Stream) else upstream
        if isinstance(target, list | tuple):
            target = WorkerGroup.of(target, "notify")
        return self.for_each(Notify(target, method, every, message, capacity))

    def reply(self, workers: Stream | Workers, method: str, message: Callable[[Any], Any] | None = None) -> Stream:
        """Answers the workers that made an item, each its own: what a server of workers that ask needs.

        Their method is called as ``method(message, version)``, right before the next item is asked of them; version is
        the number of learner updates so far. A worker is not asked for another item before. One that is restarted, or
        whose item was skipped, is asked without an answer; so is every worker for its first item.

        Args:
            workers: The workers, or a stream that begins at them.
            method: Name of their method.
            message: Makes the answer of an item; by default the item itself. For an item that was merged from those of
                several workers it is a list: an answer for each of them, in the order of their items.

        Raises:
            PlanError: They lack the method, or have further items asked of them without an answer.
        """
        target = receiver_of(workers.port.node) if isinstance(workers, Stream) else workers
        return self.for_each(Reply(WorkerGroup.of(target, "reply"), method, message))


_MODES: dict[str, Callable[[Port], Port]] = {
    "raw": lambda port: port,
    "sync": lambda port: GatherSync(port, concat=True).outputs[0],
    "async": lambda port: GatherAsync(port).outputs[0],
}
"""What `ParallelRollouts` does with the items of its workers, by mode."""


class ParallelRollouts(Stream):
    """What workers sample, as a stream.

    Args:
        workers: Worker objects, or a `WorkerGroup` of factories.
        mode: ``"raw"`` is the parallel stream. ``"sync"`` gathers it as a barrier and glues each round into one batch,
            in the order of the workers. ``"async"`` gathers items as they come.
        fragments: Items that a worker makes per call. Where workers live elsewhere a call costs a round trip; the items
            of one call are made with the same weights.
        counts: Whether these items count as training. With ``False``, as for workers that evaluate, their steps are not
            among the environment steps (and so have no part in the replay ratio), nor their lags among those of the
            gathers. `ReportMetrics` reports the episodes of the workers that it is given.
    """

    def __init__(
        self,
        workers: Workers,
        mode: Literal["raw", "sync", "async"] = "raw",
        fragments: int = 1,
        counts: bool = True,
    ) -> None:
        if mode not in _MODES:
            raise ConfigError(
                "unknown mode", where="ParallelRollouts", received=repr(mode), fix="use 'raw', 'sync' or 'async'"
            )
        source = RolloutSource(WorkerGroup.of(workers, "parallel_rollouts"), fragments, counts=counts)
        super().__init__(_MODES[mode](source.outputs[0]))


class Replay(Stream):
    """Samples from a memory; not ready until it can serve a batch.

    Args:
        memory: The memory that `StoreToBuffer` fills elsewhere in the plan.
        min_size: Environment steps that the memory must hold.
    """

    def __init__(self, memory: Memory, min_size: int = 1) -> None:
        super().__init__(ReplaySource(memory, min_size).outputs[0])


class ParallelReplay(Stream):
    """Samples from a memory in shards, as a parallel stream: ``ParallelReplay(shards).gather_async(num_async=2)``.

    A shard is asked for samples once it holds its share of ``min_size``; a sample is an item whose source is its shard.

    Args:
        shards: The memory that `StoreToBuffer` fills elsewhere in the plan.
        min_size: Environment steps that all shards together must hold.
        save: Whether checkpoints hold what is in the shards. Without it, a plan that is resumed begins with empty ones.
        fragments: Samples that a shard draws per call. Several cost less than as many calls, and are trained on in
            turn; those drawn together know nothing of each other's new priorities.

    Raises:
        PlanError: If ``shards`` is no `ReplayShards`.
    """

    def __init__(self, shards: ReplayShards, min_size: int = 1, save: bool = True, fragments: int = 1) -> None:
        if not isinstance(shards, ReplayShards):
            raise PlanError(
                "ParallelReplay needs a memory in shards",
                where="operator 'parallel_replay', argument 'shards'",
                received=type(shards).__name__,
                fix="give it ReplayShards, or use Replay(memory)",
            )
        super().__init__(ShardSource(shards, min_size, save, fragments).outputs[0])


class Select(Stream):
    """``stream.select(policy)`` in the spelling of the paper."""

    def __init__(self, stream: Stream, policy: str) -> None:
        super().__init__(stream.select(policy).port)


class Union(Stream):
    """Several streams as one. Passes over branches that are not ready; ends when all have ended.

    Args:
        branches: The streams.
        mode: ``"round_robin"`` gives branches turns in order, ``"async"`` asks the next one after every movement.
        weights: Movements per turn of each branch, 1 by default; only with ``"round_robin"``. An item that stays inside
            of a branch (buffered, filtered, stored) is a movement too. 0.25 is one in four turns.
        output: Number of the branch whose items are passed on; the others' are only worked on. None passes on all.
    """

    def __init__(
        self,
        *branches: Stream,
        mode: Literal["round_robin", "async"] = "round_robin",
        weights: Sequence[float] | None = None,
        output: int | None = None,
    ) -> None:
        for branch in branches:
            if not isinstance(branch, Stream):
                raise PlanError(
                    "a branch of a union must be a stream",
                    where="operator 'union'",
                    received=type(branch).__name__,
                    fix="give the streams one by one: Union(a, b)",
                )
        super().__init__(Unite([branch.port for branch in branches], mode, weights, output).outputs[0])

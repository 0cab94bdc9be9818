"""Gradients in parts, and the operator that has a shard of the parameters apply its own (a parameter server).

Li et al. 2014, "Scaling distributed machine learning with the parameter server". A plan of two shards::

    parts = ParallelRollouts(workers).par_for_each(ComputeGradients()).par_for_each(InParts(partition))
    sent = parts.gather_async(by_reference=True).for_each(ApplyAtShard(first, 0, workers))
    plan = ReportMetrics(sent.for_each(ApplyAtShard(second, 1, workers)), workers)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from rlweave.flow.at_actor import CallsLearner
from rlweave.flow.context import Context
from rlweave.flow.engine import ArgumentFailed, Call, wait_for_all
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, ItemReference, Pieces, Pulled, Signal, piece_of
from rlweave.flow.gradients import Gradients
from rlweave.flow.item_types import Signature
from rlweave.flow.learner import LearnerActor
from rlweave.flow.operator import Operator
from rlweave.flow.plan_errors import failure
from rlweave.flow.protocols import steps_of
from rlweave.flow.training import LearnerOperator
from rlweave.flow.workers import Workers

CALLS_AHEAD = 8
"""Updates that may be under way to one shard; more wait at their operator."""


class InParts(Operator):
    """Divides gradients among shards; scales them down before, as their norm is that of all variables together.

    Args:
        partition: For each shard, the paths of its variables.
        max_norm: Largest norm of all gradients together; None where a single shard clips them itself, or nobody does.
    """

    def __init__(self, partition: Sequence[Sequence[str]], max_norm: float | None = None) -> None:
        self.partition, self.max_norm = [list(paths) for paths in partition], max_norm
        self.pieces = len(self.partition)

    def __call__(self, gradients: Gradients) -> Pieces:
        """Gradients for each shard; the first one gets the metrics."""
        values = gradients.values
        if self.max_norm is not None:
            norm = math.sqrt(sum(float(np.sum(np.square(value, dtype=np.float64))) for value in values.values()))
            if norm > self.max_norm:
                values = {path: value * np.float32(self.max_norm / norm) for path, value in values.items()}
        parts = [Gradients({path: values[path] for path in paths}, gradients.num_steps) for paths in self.partition]
        parts[0].metrics = gradients.metrics
        return Pieces(list(parts), gradients.num_steps)

    def note(self) -> str:
        """The number of shards, and the bound on the norm."""
        clipped = "" if self.max_norm is None else f", max_norm={self.max_norm:g}"
        return f"{len(self.partition)} shards{clipped}"


class UnderWay(NamedTuple):
    """An update that was sent to a shard."""

    item: Envelope
    call: Call
    sent_at: float


class ShardCalls(CallsLearner):
    """Sends items to a shard without waiting for it, as long as few enough of them are under way.

    A shard works on its calls in order. So weights that are asked of it after a call have seen that update, and the
    version of weights is the number of updates that were sent.
    """

    _operator: ApplyAtShard

    def __init__(self, operator: ApplyAtShard, context: Context) -> None:
        super().__init__(operator, context)
        self.under_way: deque[UnderWay] = deque()

    def pull(self, output: int = 0) -> Pulled:
        """The next item, which is under way to the shard."""
        operator = self._operator
        if self._is_full() or self._is_late():
            self._settle()
        if (self._is_down() and not self._restarted()) or self._is_full():
            return self._not_ready()
        if operator.gates and not operator.gates_open():
            return NOT_READY
        item = operator.take()
        if item is END:
            self._settle()
            return self._not_ready() if self.under_way or self._is_down() else operator.at_end()
        if isinstance(item, Signal):
            return item
        operator.timer.items += 1
        if not operator.admits(item):
            return ABSORBED
        started = self._now()
        piece = piece_of(item.payload, operator.number)
        call = self._engine.call(self._record.actor, operator.method, piece)
        self.under_way.append(UnderWay(item, call, started))
        operator.sent(item)
        if self._engine.in_process:
            self._settle()
        operator.timer.seconds += self._now() - started
        return item

    def _not_ready(self) -> Pulled:
        self._blocked_in_step = self._context.turn.number
        return NOT_READY

    def _is_full(self) -> bool:
        return len(self.under_way) >= CALLS_AHEAD

    def _is_late(self) -> bool:
        hangs_at = self._hangs_at()
        return hangs_at is not None and self._now() > hangs_at

    def _hangs_at(self) -> float | None:
        return self.under_way[0].sent_at + self._rule.timeout if self.under_way else None

    def _awaited(self) -> Iterator[Call]:
        yield from (sent.call for sent in self.under_way)

    def _settle(self) -> None:
        """Takes in the results of the calls that are done, in order."""
        done = self._engine.wait([sent.call for sent in self.under_way], 0)
        self._engine.fetch(done)
        finished = set(map(id, done))
        while self.under_way and id(self.under_way[0].call) in finished:
            item, call, _ = self.under_way[0]
            try:
                metrics = call.result()
            except ArgumentFailed:  # the gradients are lost with their worker, and the shard is unchanged
                self._context.counters.lose(self._operator.name, 1)
            except Exception as error:
                self._failed(item, error)
                return
            else:
                self._operator.learned(item, metrics)
                self._succeeded()
            self.under_way.popleft()
        if self._is_late():
            hanging = TimeoutError(f"the shard did not answer for {self._rule.timeout:g} seconds")
            self._failed(self.under_way[0].item, hanging)

    def _failed(self, item: Envelope, error: Exception) -> None:
        """Restarts the shard, if that is the rule."""
        if self._rule.on_error == "stop":
            raise failure(self._operator.name, item, error) from error
        self._stop(item, error)

    def _stop(self, item: Envelope, error: Exception) -> None:
        self.under_way.clear()  # these updates are lost: the version of the weights has counted them
        super()._stop(item, error)

    def drain(self) -> None:
        """Waits for all updates that are under way, and until a lost shard is restarted."""
        while self.under_way or self._is_down():
            if self._is_down():
                if not self._restarted():
                    self._supervisor.wait()
                continue
            calls = [sent.call for sent in self.under_way]
            wait_for_all(self._engine, self._context.clock, calls, max(0.0, (self._hangs_at() or 0.0) - self._now()))
            self._settle()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: all updates have arrived."""
        self.drain()
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begins with a snapshot of the state that the shard has now."""
        self._record.keep_snapshot()


Item = TypeVar("Item", Pieces, ItemReference[Pieces])


class ApplyAtShard(LearnerOperator):
    """Has a shard apply its part of each item's gradients, and passes the item on to the next shard.

    Every shard of a plan is a learner of its own, with versions of its own: workers get the weights of all of them,
    with the version of each. An item may be a reference to gradients: then they go from the worker to the shard.
    Nothing waits for a shard here, so all get the same gradients in the same order.

    Args:
        shard: Makes the shard, whose ``update`` takes its part as `Gradients` and gives metrics.
        number: Its number among the shards. The first one counts updates.
        workers: Workers that act on its weights.
    """

    calls: ClassVar[type[CallsLearner]] = ShardCalls
    in_flight = CALLS_AHEAD

    def __init__(self, shard: LearnerActor, number: int, workers: Workers) -> None:
        super().__init__(shard, workers)
        self.number = number

    def default_name(self) -> str:
        """As that of the operator whose work the shards share."""
        return "apply_gradients"

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def sent(self, item: Envelope) -> None:
        """Counts an update that is under way, and publishes the weights after it."""
        self._record.updated()
        if self._lag is not None:
            self._context.note_train_lag(self.name, self._lag)
            self._lag = None
        if self.number == 0:
            self._counters.trained_samples += steps_of(item.payload)
            self._counters.gradient_steps += 1
            self._counters.updates += 1
        if self._channel is not None:
            self._channel.publish_to_all()

    def learned(self, item: Envelope, metrics: Mapping[str, Any]) -> None:
        """Reports the metrics of an update.

        Raises:
            PlanError: One is not finite: training has diverged.
        """
        try:
            self._context.metrics.add(self.name, metrics, finite=True)
        except Exception as error:
            raise failure(self.name, item, error) from error

    def note(self) -> str:
        """The shard, and the workers that get its weights."""
        return f"shard {self.number}, sends weights to {0 if self.sends_to is None else len(self.sends_to)} workers"

"""Rings of records inside the graph: what memories and queues written in ops share; a queue and a ring buffer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from rlweave import graph, ops
from rlweave.components.memories.replay import check_rows, checked_batch_size, checked_capacity, record_space
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.variable import Variable
from rlweave.spaces import Space
from rlweave.tree import tree_map

Array = Any


class GraphRing(Component):
    """Records in variables on the device, one per leaf, written and read by ops: a compiled program can hold it.

    Nothing here can refuse data by an error, as a compiled program has no exceptions: what is not there is marked.

    Args:
        capacity: Number of records kept.
        scope: Name within the owner.
    """

    @abstractmethod
    def __init__(self, capacity: int, scope: str) -> None:
        super().__init__(scope)
        self.capacity = checked_capacity(capacity, scope)

    def create_variables(self, records: Space) -> None:
        self.record_space = record_space(records, self.path)
        leaves = self.record_space.flatten()
        self.nesting = self.record_space.unflatten({path: path for path in leaves})
        self.ring: dict[str, Variable] = {
            path: self.variable(
                f"records/{path}" if path else "records",
                (self.capacity, *leaf.feature_shape),
                0,
                trainable=False,
                dtype=leaf.dtype,
            )
            for path, leaf in leaves.items()
        }
        #: Where the next record goes, and how many are held. (A count of all would overflow int32 within hours.)
        self.position = self.variable("position", (), 0, trainable=False, dtype="int32")
        self.filled = self.variable("filled", (), 0, trainable=False, dtype="int32")

    @graph_fn
    def size(self) -> Any:
        """Number of records held, int32."""
        return self.filled.value + 0

    def _append(self, records: dict[str, Array]) -> Array:
        """Writes records over the oldest (inside a graph function); returns their slots, int32."""
        count = next(iter(records.values())).shape[0]
        kept = min(count, self.capacity)  # the rest would be overwritten by the same batch
        slots = ops.remainder(self.position.value + ops.arange(count - kept, count), self.capacity)
        for path, cell in self.ring.items():
            cell.assign_at(slots, records[path][count - kept :])
        self.position.assign(ops.remainder(self.position.value + count, self.capacity))
        self.filled.assign(ops.minimum(self.filled.value + count, self.capacity))
        return slots

    def _gather(self, slots: Array) -> Any:
        """Records at some slots, nested (inside a graph function)."""
        return tree_map(lambda path: ops.take(self.ring[path].value, slots, axis=0), self.nesting)


@register("fifo_queue")
class FIFOQueue(GraphRing):
    """A bounded queue of records: first in, first out.

    Args:
        capacity: Number of records that it holds; what does not fit is not taken, and counted.
        scope: Name within the owner.
    """

    def __init__(self, capacity: int, scope: str = "queue") -> None:
        super().__init__(capacity, scope)

    @api
    def put(self, records: Any) -> Any:
        """Appends records, nested (B, ...); returns how many did not fit, int32. The first ones fit first."""
        check_rows(records, f"{self.path}.put")
        return self._put(records)

    @graph_fn(flatten=True, differentiable=False)
    def _put(self, records: Any) -> Any:
        count = next(iter(records.values())).shape[0]
        considered = min(count, self.capacity)
        taken = ops.minimum(self.capacity - self.filled.value, considered)
        order = ops.arange(considered)
        slots = ops.remainder(self.position.value + order, self.capacity)
        for path, cell in self.ring.items():
            rows = records[path][:considered]
            fits = ops.reshape(order < taken, (considered, *(1 for _ in rows.shape[1:])))
            cell.assign_at(slots, ops.where(fits, rows, ops.take(cell.value, slots, axis=0)))
        self.position.assign(ops.remainder(self.position.value + taken, self.capacity))
        self.filled.assign(self.filled.value + taken)
        return count - taken

    @api(static=("count",))
    def get(self, count: int) -> Any:
        """Takes the oldest records out.

        Args:
            count: How many, a Python constant.

        Returns:
            (records, there): nested (count, ...), and bool (count,), False where there was none left.
        """
        return graph.batch_rank(self._get(checked_batch_size(count, f"{self.path}.get")))

    @graph_fn(differentiable=False, returns=2)
    def _get(self, count: int) -> Any:
        order = ops.arange(count)
        there = order < self.filled.value
        oldest = self.position.value - self.filled.value
        records = self._gather(ops.remainder(oldest + order, self.capacity))
        self.filled.assign(ops.maximum(self.filled.value - count, 0))
        return records, there


@register("ring_buffer")
class RingBuffer(GraphRing):
    """The latest records, in order.

    Args:
        capacity: Number of records kept; the oldest give way.
        scope: Name within the owner.
    """

    def __init__(self, capacity: int, scope: str = "buffer") -> None:
        super().__init__(capacity, scope)

    @api
    def insert(self, records: Any) -> None:
        """Appends records, nested (B, ...)."""
        check_rows(records, f"{self.path}.insert")
        self._insert(records)

    @graph_fn(flatten=True, differentiable=False)
    def _insert(self, records: Any) -> None:
        self._append(records)

    @api(static=("count",))
    def latest(self, count: int) -> Any:
        """The latest records, the oldest of them first; they stay.

        Args:
            count: How many, a Python constant.

        Returns:
            (records, there): nested (count, ...), and bool (count,), False in front where there are fewer.
        """
        return graph.batch_rank(self._latest(checked_batch_size(count, f"{self.path}.latest")))

    @graph_fn(differentiable=False, returns=2)
    def _latest(self, count: int) -> Any:
        age = count - ops.arange(count)
        records = self._gather(ops.remainder(self.position.value - age, self.capacity))
        return records, age <= self.filled.value

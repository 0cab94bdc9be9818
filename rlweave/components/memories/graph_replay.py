"""Replay memories inside the graph: `ReplayMemory` and `PrioritizedReplay` as variables and ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave import graph, ops
from rlweave.components.memories.graph_ring import GraphRing
from rlweave.components.memories.prioritized import LOW_BITS, checked_exponents
from rlweave.components.memories.replay import check_rows, checked_batch_size
from rlweave.components.memories.sum_tree import node_count
from rlweave.components.schedules import Schedule, make_schedule
from rlweave.graph import api, graph_fn, register
from rlweave.settings.ranges import PROBABILITY
from rlweave.spaces import Space

Array = Any


@register("graph_replay")
class GraphReplay(GraphRing):
    """`ReplayMemory` in the graph: records are drawn evenly, with replacement.

    An empty memory gives records of zeros with weight 0, from which nothing is learned.

    Args:
        capacity: Number of records kept; the oldest give way.
        scope: Name within the owner.
    """

    def __init__(self, capacity: int, scope: str = "memory") -> None:
        super().__init__(capacity, scope)

    @api
    def insert(self, records: Any) -> None:
        """Stores a batch of records, nested (B, ...); the oldest are overwritten when the ring is full."""
        check_rows(records, f"{self.path}.insert")
        self._insert(records)

    @graph_fn(flatten=True, differentiable=False)
    def _insert(self, records: Any) -> None:
        self._append(records)

    @api(static=("batch_size",))
    def sample(self, batch_size: int) -> Any:
        """Draws records; see `ReplayMemory.sample`.

        Args:
            batch_size: How many, a Python constant.

        Returns:
            (records, indices, importance weights): nested (batch_size, ...), int32 and float32 (batch_size,).
        """
        return graph.batch_rank(self._sample(checked_batch_size(batch_size, f"{self.path}.sample")))

    @api
    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        """Does nothing: records are drawn evenly."""

    @graph_fn(differentiable=False, returns=3)
    def _sample(self, batch_size: int) -> Any:
        slots = ops.random.randint((batch_size,), 0, ops.maximum(self.filled.value, 1))
        weights = ops.where(self.filled.value > 0, ops.ones((batch_size,)), 0.0)
        return self._gather(slots), slots, weights


@register("graph_prioritized_replay")
class GraphPrioritizedReplay(GraphReplay):
    """`PrioritizedReplay` in the graph: a sum tree in float32, whose parents are recomputed from their children.

    Where `PrioritizedReplay` raises an error, this one takes no harm: a TD error that is not finite and a slot that
    holds no record leave priorities as they are.

    Args:
        capacity: See `PrioritizedReplay`, also for the others.
        alpha: How much priorities count.
        beta: How much of the bias is corrected: a number, or a schedule (or its spec) over the records inserted.
        epsilon: Added to |TD error|.
        scope: Name within the owner.
    """

    def __init__(
        self,
        capacity: int,
        alpha: float = 0.6,
        beta: float | Mapping[str, Any] | Sequence[Any] | Schedule = 0.4,
        epsilon: float = 1e-6,
        scope: str = "memory",
    ) -> None:
        super().__init__(capacity, scope)
        self.alpha, self.epsilon = checked_exponents(alpha, epsilon, scope)
        self.beta = make_schedule(beta)
        PROBABILITY.check_schedule("beta", self.beta, scope)
        self.leaves = node_count(capacity) // 2
        self.top_width = min(self.leaves, _TOP_WIDTH)

    def create_variables(self, records: Space) -> None:
        super().create_variables(records)
        #: Node k has the children 2k and 2k + 1, leaf i is node `leaves` + i; those above `top_width` are in `top`,
        #: which is recomputed as a whole: writing single nodes of every level takes its time in a compiled program.
        self.nodes = self.variable("sum-tree", (2 * self.leaves,), 0.0, trainable=False)
        self.top = self.variable("sum-tree-top", (2 * self.top_width,), 0.0, trainable=False)
        self.largest = self.variable("largest-priority", (), 1.0, trainable=False)
        #: For the schedule of beta; stops where int32 ends.
        self.inserted = self.variable("inserted", (), 0, trainable=False, dtype="int32")

    @graph_fn(flatten=True, differentiable=False)
    def _insert(self, records: Any) -> None:
        # new records get the largest priority seen so far
        slots = self._append(records)
        count = next(iter(records.values())).shape[0]
        priority = self.largest.value**self.alpha
        self._set(slots, ops.broadcast_to(priority, slots.shape))
        self.inserted.assign(ops.where(self.inserted.value > _LAST - count, _LAST, self.inserted.value + count))

    @graph_fn(differentiable=False, mixes_batch=True)
    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        """Sets the priorities of records to (|TD error| + epsilon)**alpha. Where an index comes twice, the last wins.

        Args:
            indices: Their slots, from `sample`, int (B,).
            td_errors: Their TD errors, float (B,).
        """
        errors = ops.abs(td_errors) + self.epsilon
        known = ops.logical_and(ops.isfinite(errors), ops.logical_and(indices >= 0, indices < self.filled.value))
        slots = ops.where(known, indices, 0)
        # every row of a slot takes what the last of them brings: equal values may be written in any order
        order = ops.arange(indices.shape[0])
        same = ops.logical_and(ops.equal(slots[:, None], slots[None, :]), known[None, :])
        last = ops.max(ops.where(same, order[None, :], -1), axis=1)
        brought = ops.take(ops.where(known, errors, 0.0), ops.maximum(last, 0)) ** self.alpha
        held = ops.take(self.nodes.value, slots + self.leaves)
        self._set(slots, ops.where(last >= 0, brought, held))
        largest = ops.max(ops.where(known, errors, 0.0)) if indices.shape[0] else self.largest.value
        self.largest.assign(ops.maximum(self.largest.value, largest))

    @graph_fn(differentiable=False, returns=3)
    def _sample(self, batch_size: int) -> Any:
        filled, total = self.filled.value, self.top.value[1]
        draw = ops.random.uniform((2, batch_size))
        parts = (ops.arange(batch_size, dtype="float32") + (draw[0] + draw[1] * LOW_BITS)) / batch_size
        found = self._find(parts * total)
        # nothing is known to be better than anything else
        evenly = ops.minimum(ops.astype(draw[0] * ops.astype(filled, "float32"), "int32"), ops.maximum(filled - 1, 0))
        slots = ops.where(total > 0.0, found, evenly)
        priorities = ops.take(self.nodes.value, slots + self.leaves)
        ratios = ops.where(priorities > 0.0, ops.min(priorities) / ops.maximum(priorities, _TINY), 1.0)
        weights = ratios ** self.beta.in_graph(self.inserted.value, ops)
        weights = ops.where(total > 0.0, weights, ops.where(filled > 0, ops.ones((batch_size,)), 0.0))
        return self._gather(slots), slots, weights

    def _set(self, slots: Array, priorities: Array) -> None:
        """Sets leaves, and recomputes what is above them; rows of equal slots bring equal priorities."""
        nodes, width = slots + self.leaves, self.leaves
        self.nodes.assign_at(nodes, priorities)
        while width > self.top_width:
            width //= 2
            nodes = ops.floor_divide(nodes, 2)
            tree = self.nodes.value
            self.nodes.assign_at(nodes, ops.take(tree, 2 * nodes) + ops.take(tree, 2 * nodes + 1))
        levels = [self.nodes.value[width : 2 * width]]
        while width > 1:
            width //= 2
            pairs = ops.reshape(levels[0], (width, 2))
            levels.insert(0, pairs[:, 0] + pairs[:, 1])
        self.top.assign(ops.concat([ops.zeros((1,)), *levels], axis=0))

    def _find(self, prefix_sums: Array) -> Array:
        """The leaf at each prefix sum; one without a priority is never found while the total is above 0."""
        remaining, nodes, width = prefix_sums, ops.ones(prefix_sums.shape, dtype="int32"), 1
        while width < self.leaves:
            tree = (self.top if width < self.top_width else self.nodes).value
            left = ops.take(tree, 2 * nodes)
            right = ops.logical_and(remaining >= left, ops.take(tree, 2 * nodes + 1) > 0.0)
            remaining = ops.where(right, remaining - left, remaining)
            nodes, width = 2 * nodes + ops.astype(right, "int32"), 2 * width
        return nodes - self.leaves


_LAST = 2**31 - 1
_TINY = 1e-37
_TOP_WIDTH = 4096
# Levels of the tree up to this width are recomputed as a whole.
_WHOLE_LEVEL = 4096

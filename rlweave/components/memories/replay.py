"""Replay memory: records in a ring, drawn evenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave import ops
from rlweave.components.memories.pictures import PictureRing, picture_shape
from rlweave.errors import BuildError, ExecutionError, SpaceError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.ir import Value
from rlweave.graph.variable import Variable
from rlweave.spaces import Box, FloatBox, IntBox, Space
from rlweave.tree import flatten_tree, tree_map


@register("replay")
class ReplayMemory(Component):
    """Records in a ring; `sample` draws them evenly, with replacement.

    It lives on the host, in NumPy arrays that are written in place: one variable per leaf of the record, in the
    precision of its space; images are stored once for all records that share them (`PictureRing`). The ring, its
    counter and the random state are in the store, so checkpoints hold them.
    `PrioritizedReplay` has the same API methods, so one setting switches between the two.

    The order of events is the caller's: ask `size()` (or count) before sampling.

    Args:
        capacity: Number of records kept; the oldest give way.
        scope: Name within the owner.
    """

    def __init__(self, capacity: int, scope: str = "memory") -> None:
        super().__init__(scope, device="host")
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
            if picture_shape(leaf) is None
        }
        kinds: dict[Any, dict[str, Box]] = {}
        for path, leaf in leaves.items():
            if path not in self.ring:
                kinds.setdefault((picture_shape(leaf), leaf.dtype), {})[path] = leaf
        self.picture_rings = [PictureRing(alike, self.capacity) for alike in kinds.values()]
        self.picture_cells = [ring.variables(self, f"pictures-{i}") for i, ring in enumerate(self.picture_rings)]
        self.inserted = self.variable("inserted", (), 0, trainable=False, dtype="int64")
        if self.picture_rings:
            #: The number of the oldest record whose pictures are all there.
            self.whole_from = self.variable("whole-from", (), 0, trainable=False, dtype="int64")

    # -- API -----------------------------------------------------------------------------------------------------

    @graph_fn(host=True, flatten=True, differentiable=False, spaces="_insert_spaces")
    def insert(self, records: Any) -> None:
        """Stores a batch of records (copies them); the oldest are overwritten when the ring is full.

        Args:
            records: Any nesting with a batch rank, (B, ...) per leaf.
        """
        for _ in self._write(records):
            pass

    @api(static=("batch_size",))
    def sample(self, batch_size: int) -> Any:
        """Draws records.

        Args:
            batch_size: How many, a Python constant.

        Returns:
            (records, indices, importance weights): records nested like the inserted ones with batch rank
            `batch_size`; indices int32 (batch_size,), for `update_priorities`; weights float32 (batch_size,), all 1
            where drawn evenly.

        Raises:
            ExecutionError: The memory is empty.
        """
        return self._sample(batch_size)

    @api
    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        """Does nothing: records are drawn evenly. `PrioritizedReplay` needs it."""

    @graph_fn(host=True, differentiable=False, spaces="_size_space")
    def size(self) -> Any:
        """Number of records held, int32."""
        return np.asarray(self._filled(), np.int32)

    # -- graph functions -----------------------------------------------------------------------------------------

    @graph_fn(host=True, differentiable=False, spaces="_sample_spaces", returns=3)
    def _sample(self, batch_size: int) -> Any:
        indices = self._slots_of(ops.random.randint((batch_size,), 0, self._filled_or_refuse()))
        return self._gather(indices), indices, np.ones(batch_size, np.float32)

    # -- what both kinds of memory share -------------------------------------------------------------------------

    def _filled(self) -> int:
        return int(self.inserted.value) - self._oldest()

    def _oldest(self) -> int:
        """The number of the oldest record that is held, counted from the first that was ever inserted."""
        kept = max(int(self.inserted.value) - self.capacity, 0)
        return max(kept, int(self.whole_from.value)) if self.picture_rings else kept

    def _slots_of(self, indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The slots of records, by numbers from 0 to below `_filled`."""
        if self._filled() == min(int(self.inserted.value), self.capacity):
            return indices  # all slots that were ever written to, in whichever order
        return ((self._oldest() + indices) % self.capacity).astype(indices.dtype)

    def _filled_or_refuse(self) -> int:
        filled = self._filled()
        if filled == 0:
            raise ExecutionError(
                "a batch was asked of an empty memory",
                where=f"{self.path}.sample",
                received="0 records inserted so far",
                fix="insert records first; ask size() (or count inserts) before the first sample",
            )
        return filled

    def _write(self, records: dict[str, Any]) -> Iterator[tuple[int, int]]:
        """Writes records into the ring; yields (first slot, count) of each piece of neighbouring slots."""
        inserted, capacity = int(self.inserted.value), self.capacity
        count = len(next(iter(records.values())))
        skipped = max(count - capacity, 0)  # they would be overwritten by the rest of the same batch
        position = skipped
        while position < count:
            slot = (inserted + position) % capacity
            piece = min(count - position, capacity - slot)
            for path, cell in self.ring.items():
                cell.assign_at(slice(slot, slot + piece), records[path][position : position + piece])
            for ring, cells in zip(self.picture_rings, self.picture_cells, strict=True):
                ring.write(cells, slot, {path: records[path][position : position + piece] for path in ring.columns})
            position += piece
            yield slot, piece
        self.inserted.assign(inserted + count)
        if self.picture_rings:
            self._forget_damaged()

    def _forget_damaged(self) -> None:
        """Lets records go whose pictures had to give way to new ones."""
        first = oldest = max(int(self.inserted.value) - self.capacity, int(self.whole_from.value))
        pairs = list(zip(self.picture_rings, self.picture_cells, strict=True))
        while not all(ring.is_whole(cells, oldest % self.capacity) for ring, cells in pairs):
            oldest += 1
        self.whole_from.assign(oldest)
        if oldest > first:
            self._forget(np.arange(first, oldest) % self.capacity)

    def _forget(self, slots: npt.NDArray[np.int64]) -> None:
        """Called with the slots of records that are no longer held, though nothing was written there."""

    def _gather(self, indices: npt.NDArray[Any]) -> Any:
        """Fresh arrays of the records at some slots, nested."""
        taken = {path: cell.value.take(indices, axis=0) for path, cell in self.ring.items()}
        for ring, cells in zip(self.picture_rings, self.picture_cells, strict=True):
            taken |= {path: ring.take(cells, path, indices) for path in ring.columns}
        return tree_map(taken.__getitem__, self.nesting)

    # -- result spaces -------------------------------------------------------------------------------------------

    def _insert_spaces(self, records: Any) -> None:
        """Nothing comes out; what goes in has one row per record in every leaf."""
        check_rows(records, f"{self.path}.insert")

    def _size_space(self) -> IntBox:
        return IntBox(self.capacity + 1)

    def _sample_spaces(self, batch_size: int) -> tuple[Space, IntBox, FloatBox]:
        checked_batch_size(batch_size, f"{self.path}.sample")
        return (
            self.record_space.with_batch_rank(batch_size),
            IntBox(self.capacity, add_batch_rank=batch_size),
            FloatBox(low=0.0, high=1.0, add_batch_rank=batch_size),
        )


def check_rows(records: Any, where: str) -> None:
    """Refuses records (spaces, or values while a graph is traced) whose leaves differ in their batch rank."""
    flat = records.flatten() if isinstance(records, Space) else flatten_tree(records)
    leaves = {path: leaf.space if isinstance(leaf, Value) else leaf for path, leaf in flat.items()}
    leaves = {path: leaf for path, leaf in leaves.items() if isinstance(leaf, Box)}
    first = next(iter(leaves), "")
    for path, leaf in leaves.items():
        if leaf.batch != leaves[first].batch:
            raise SpaceError(
                "the leaves of the records have different batch sizes",
                where=where,
                received=f"{first!r}: {leaves[first]!r}, {path!r}: {leaf!r}",
                fix="pass one row per record in every leaf",
            )


def checked_capacity(capacity: Any, where: str) -> int:
    """A capacity; refuses what is no number of records."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity < 2**31:
        raise BuildError(
            "the capacity of a memory is a whole number of records",
            where=where,
            received=repr(capacity),
            fix="choose 1 or more (below 2**31)",
        )
    return capacity


def checked_batch_size(batch_size: Any, where: str) -> int:
    """A batch size; refuses what is no number of records."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BuildError(
            "the batch size is a whole number of records",
            where=where,
            received=repr(batch_size),
            fix="choose 1 or more",
        )
    return batch_size


def record_space(records: Any, where: str) -> Space:
    """The space of one record; refuses what a ring of records cannot hold."""
    if not isinstance(records, Space):
        raise SpaceError("records must be arrays, nested in dicts and tuples", where=where, received=repr(records))
    leaves = records.flatten()
    if not leaves:
        raise SpaceError(
            "a record without any array", where=where, received=repr(records), fix="insert at least one leaf"
        )
    for path, leaf in leaves.items():
        if not leaf.has_batch_rank or leaf.has_time_rank:
            raise SpaceError(
                "records need a batch rank and no time rank",
                where=f"{where}.insert, leaf {path!r}",
                received=repr(leaf),
                fix="fold time into the batch (ops.fold_ranks), or add the batch rank to the space",
            )
    return records.strip_ranks()

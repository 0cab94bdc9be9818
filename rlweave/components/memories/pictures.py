"""Pictures of replayed records, each stored once: neighbouring observations share most of theirs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.graph import Component
from rlweave.graph.variable import Variable
from rlweave.spaces import Box
from rlweave.spaces.box import FRAMES_FIRST

Cells = dict[str, Variable]

#: Smaller pictures are stored as often as they come: looking for them would take longer.
_SMALLEST = 256
_WORD = 8


def picture_shape(leaf: Box) -> tuple[int, ...] | None:
    """Shape of the pictures in a leaf of a record: single frames of a stack, else whole images; None: it has none."""
    if not leaf.is_image:
        return None
    shape = leaf.feature_shape[1:] if leaf.layout == FRAMES_FIRST else leaf.feature_shape
    return shape if math.prod(shape) * np.dtype(leaf.dtype).itemsize >= _SMALLEST else None


class PictureRing:
    """The pictures of the records in a memory, in a ring of their own.

    A picture that equals one of those stored last is not stored again; nothing is assumed of the order in which
    records come. So a stack of frames takes one new frame for each step, whatever the environments, the length of
    n-step returns and the ends of episodes are; the next observation of one record is the observation of another.

    There is room for one picture per record, a sixteenth more, and those that are looked at. Where episodes are so
    short (or observations so different) that this is too little, the oldest records give way earlier.

    Args:
        leaves: Leaves of a record by path, whose pictures have one shape and dtype.
        capacity: Records in the memory.
    """

    def __init__(self, leaves: Mapping[str, Box], capacity: int) -> None:
        first = next(iter(leaves.values()))
        shape = picture_shape(first)
        assert shape is not None
        self.shapes = {path: leaf.feature_shape for path, leaf in leaves.items()}
        counts = [1 if leaf.feature_shape == shape else leaf.feature_shape[0] for leaf in leaves.values()]
        ends = np.cumsum(counts).tolist()
        self.columns = {path: slice(end - n, end) for path, end, n in zip(leaves, ends, counts, strict=True)}
        self.shape, self.dtype, self.width, self.capacity = shape, first.dtype, ends[-1], capacity
        #: How many of the last pictures new ones are compared with.
        self.window = 128 + capacity // 40
        self.room = max(capacity + capacity // 16, self.width)
        self.size = self.room + self.window
        words = math.prod(shape) * np.dtype(first.dtype).itemsize // _WORD
        self._factors = np.random.default_rng(words).integers(0, 2**64, words, np.uint64) | np.uint64(1)
        self._recent = _Recent(self.window)

    def variables(self, memory: Component, name: str) -> Cells:
        """Declares the variables of a memory that its methods work on.

        * `pictures`: the ring, (size, *shape);
        * `places`: where each record has its pictures, int32 (capacity, pictures of a record);
        * `before`: how many pictures there had been when each record came, int64 (capacity,);
        * `stored`: how many there have been in all, int64.
        """
        declared = {
            "pictures": ((self.size, *self.shape), self.dtype),
            "places": ((self.capacity, self.width), "int32"),
            "before": ((self.capacity,), "int64"),
            "stored": ((), "int64"),
        }
        return {
            key: memory.variable(f"{name}/{key}", shape, 0, trainable=False, dtype=dtype)
            for key, (shape, dtype) in declared.items()
        }

    def write(self, cells: Cells, slot: int, records: Mapping[str, npt.NDArray[Any]]) -> None:
        """Stores the pictures of records for neighbouring slots of the memory."""
        count = len(records[next(iter(self.columns))])
        parts = [records[path].reshape(count, -1, *self.shape) for path in self.columns]
        pictures = np.concatenate(parts, axis=1, dtype=parts[0].dtype) if len(parts) > 1 else parts[0]
        step = max(self.room // self.width, 1)  # so few write over nothing that they are compared with
        for start in range(0, count, step):
            rows = np.ascontiguousarray(pictures[start : start + step])
            before, places = int(cells["stored"].value), self._place(cells, rows.reshape(-1, *self.shape))
            at = slice(slot + start, slot + start + len(rows))
            cells["places"].assign_at(at, places.reshape(len(rows), self.width))
            cells["before"].assign_at(at, before)

    def take(self, cells: Cells, path: str, slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A leaf of the records in some slots, (N, *shape)."""
        places = cells["places"].value[:, self.columns[path]].take(slots, axis=0)
        return cells["pictures"].value.take(places, axis=0).reshape(len(slots), *self.shapes[path])

    def is_whole(self, cells: Cells, slot: int) -> bool:
        """Whether none of the pictures of the record in a slot was written over."""
        return int(cells["before"].value[slot]) - self.window >= int(cells["stored"].value) - self.size

    def _place(self, cells: Cells, pictures: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Stores pictures (N, *shape), unless they are there already; where each of them lies."""
        ring = cells["pictures"].value
        self._recent.catch_up(int(cells["stored"].value), functools.partial(self._prints_of, ring))
        prints = self._prints(pictures)
        numbers = np.empty(len(prints), np.int64)
        new: list[int] = []
        for row, mark in enumerate(prints):
            known = self._recent.numbers.get(mark)
            if known is None:
                known = self._recent.add(mark)
                new.append(row)
            numbers[row] = known
        cells["pictures"].assign_at(numbers[new] % self.size, pictures[new])
        same = (ring.take(numbers % self.size, axis=0) == pictures).reshape(len(prints), -1).all(axis=1)
        for row in np.flatnonzero(~same).tolist():  # another picture with the same print
            numbers[row] = self._recent.add(prints[row])
            cells["pictures"].assign_at(numbers[row : row + 1] % self.size, pictures[row : row + 1])
        cells["stored"].assign(self._recent.count)
        self._recent.forget()
        return numbers % self.size

    def _prints(self, pictures: npt.NDArray[Any]) -> list[int]:
        """A number for each picture: different ones mean different pictures."""
        words = len(self._factors)
        rows = np.ascontiguousarray(pictures).reshape(len(pictures), -1).view(np.uint8)[:, : words * _WORD]
        marks: list[int] = (np.ascontiguousarray(rows).view(np.uint64) @ self._factors).tolist()
        return marks

    def _prints_of(self, ring: npt.NDArray[Any], first: int, last: int) -> list[int]:
        """Those of stored pictures by their numbers."""
        return self._prints(ring.take(np.arange(first, last) % self.size, axis=0))


class _Recent:
    """The prints of the last pictures; follows from what is stored, so no checkpoint needs it.

    Args:
        window: How many pictures.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.count = 0
        self.numbers: dict[int, int] = {}
        self._marks: dict[int, int] = {}

    def catch_up(self, count: int, prints_of: Any) -> None:
        """Begins anew from what is stored, if that has changed from outside."""
        if count == self.count:
            return
        first = max(count - self.window, 0)
        self.numbers, self._marks, self.count = {}, {}, first
        for mark in prints_of(first, count):
            self.add(mark)

    def add(self, mark: int) -> int:
        """The number of a new picture."""
        number = self.count
        self.numbers[mark], self._marks[number] = number, mark
        self.count += 1
        return number

    def forget(self) -> None:
        """Leaves out those before the window."""
        for number in range(self.count - len(self._marks), self.count - self.window):
            mark = self._marks.pop(number)
            if self.numbers.get(mark) == number:
                del self.numbers[mark]

"""The environment boundary: the values of one Gymnasium space, written into and read out of NumPy batches.

Everything in which Gymnasium's values differ from rlweave's is settled here, once: 64-bit numbers become 32-bit
ones, a ``Discrete`` that starts elsewhere than at 0 becomes an index from 0, and values are copied, so that an
environment that returns the same array at every step cannot change what it returned before.

A *batch* has the nesting of its space (dicts and tuples) and an array of shape (num_envs, *shape) at each leaf.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from rlweave.envs.contract import OutOfRange, integer_bounds
from rlweave.errors import EnvError
from rlweave.spaces import Box
from rlweave.spaces.gymnasium_spaces import from_gymnasium, value_to_gymnasium

Array = npt.NDArray[Any]
Batch = Any
"""An array, or a dict or tuple of batches."""
ErrorT = TypeVar("ErrorT", bound=EnvError)
Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], Array]


class BatchCodec(ABC):
    """Moves the values of one space between Gymnasium's form and batches of rlweave's form.

    Args:
        path: Path of this space in the whole one, as in ``"a/b"``; empty at the root.
    """

    #: Whether a leaf has integers whose dtype holds more values than its space; `check_range` checks those.
    is_narrow: bool

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def allocate(self, num_envs: int, allocate: Allocate = np.zeros) -> Batch:
        """Returns a batch of unset values.

        Args:
            num_envs: Number of rows.
            allocate: Called with (shape, dtype) for each leaf; the default makes arrays, others give shared memory.
        """

    @abstractmethod
    def write(self, batch: Batch, index: int, value: Any) -> None:
        """Copies one value of an environment into a row of a batch.

        Args:
            batch: A batch from `allocate`.
            index: The row.
            value: A value of the Gymnasium space.

        Raises:
            EnvError: If the value does not fit the structure, shape, kind or range of its space.
        """

    def split(self, batch: Batch, num_envs: int) -> Sequence[Any]:
        """Returns each row as a value of the Gymnasium space, none of which shares memory with the batch.

        Args:
            batch: A batch of rlweave values, for instance actions from a policy.
            num_envs: Number of rows it must have.

        Raises:
            EnvError: If the batch does not fit the structure, shape, kind or range of its space.
        """
        values = self.to_vector(batch, num_envs)
        return [self.row(values, index) for index in range(num_envs)]

    @abstractmethod
    def row(self, values: Any, index: int) -> Any:
        """Returns one row of what `to_vector` gave, as `split` does."""

    @abstractmethod
    def to_vector(self, batch: Batch, num_envs: int) -> Any:
        """Like `split`, but returns one value of Gymnasium's batched space, for its vector environments."""

    @abstractmethod
    def from_vector(self, value: Any, num_envs: int) -> Batch:
        """Returns a fresh batch from one value of Gymnasium's batched space.

        Raises:
            EnvError: If the value does not fit the structure, shape, kind or range of its space.
        """

    @abstractmethod
    def copy(self, batch: Batch) -> Batch:
        """Returns a copy of a batch."""

    @abstractmethod
    def replace(self, batch: Batch, other: Batch, mask: npt.NDArray[np.bool_]) -> Batch:
        """Returns a copy of a batch in which the rows where `mask` is True come from `other`."""

    @abstractmethod
    def leaves(self) -> Iterator[LeafCodec]:
        """Yields the codecs of the leaves."""

    @abstractmethod
    def find_nonfinite(self, batch: Batch) -> tuple[int, str] | None:
        """Returns row and path of the first NaN or infinity of a batch, or None when it has none."""

    def check_range(self, batch: Batch) -> None:
        """Checks the integers of a batch that was filled by `write`, all rows at once.

        `write` has refused values that its cast would have changed.

        Raises:
            OutOfRange: One does not lie in its space.
        """
        for leaf, array in self._bounded_leaves(batch):
            leaf.check_bounds(array)

    def _bounded_leaves(self, batch: Batch) -> Iterator[tuple[LeafCodec, Array]]:
        """Yields the leaves whose integers may lie outside of their space, with their arrays."""
        raise NotImplementedError

    def _wrong(self, what: str, received: str, kind: type[ErrorT] = EnvError) -> ErrorT:  # type: ignore[assignment]
        leaf = f"leaf {self.path!r} of the value" if self.path else "the value"
        return kind(f"{leaf} {what}", received=received, fix="return values that lie in the declared space")


class LeafCodec(BatchCodec):
    """A leaf, which one array holds.

    Args:
        path: Path of the leaf in the whole space.
        space: The leaf's Gymnasium space.
    """

    def __init__(self, path: str, space: gymnasium.Space[Any]) -> None:
        super().__init__(path)
        target = from_gymnasium(space)
        assert isinstance(target, Box)
        self.shape: tuple[int, ...] = target.feature_shape
        self.dtype = np.dtype(target.dtype)
        self._space = space
        self._env_dtype = np.dtype(space.dtype)
        # A float written into an integer leaf would be truncated silently: an image in [0, 1] becomes black.
        self._kinds = "biuf" if self.dtype.kind == "f" else "biu"
        self._is_box = isinstance(space, gymnasium.spaces.Box)
        #: Of integers and flags: lowest and highest value, as numbers if all are equal; None where any value is right.
        self._bounds: tuple[Any, Any] | None = None
        self.is_narrow = False
        if self.dtype.kind != "f":
            self._bounds, is_narrow = integer_bounds(target)
            self.is_narrow = is_narrow and self._is_box
        self._counts: Any = None
        self._start: Any = None
        if isinstance(space, (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete)):
            counts = space.n if isinstance(space, gymnasium.spaces.Discrete) else space.nvec
            self._counts = np.asarray(counts, np.uint64)
            self._start = np.asarray(space.start, np.int64) if np.any(space.start) else None

    def allocate(self, num_envs: int, allocate: Allocate = np.zeros) -> Array:
        return allocate((num_envs, *self.shape), self.dtype)

    def write(self, batch: Array, index: int, value: Any) -> None:
        array = np.asarray(value)
        if array.shape != self.shape or array.dtype.kind not in self._kinds:
            raise self._mismatch(array, self.shape)
        if self._counts is not None:
            array = self._to_indices(array)
        batch[index] = array
        # A number that the cast changed lies outside; `check_range` checks the others.
        if self._bounds is not None and array.dtype != self.dtype and np.count_nonzero(batch[index] != array):
            self.check_bounds(array)

    def split(self, batch: Array, num_envs: int) -> Sequence[Any]:
        values = self.to_vector(batch, num_envs)
        if self._is_box and not self.shape:
            # Iterating over a batch of scalars gives NumPy scalars: right for Discrete, wrong for a Box.
            return [values[row, ...] for row in range(num_envs)]
        return list(values)

    def row(self, values: Any, index: int) -> Any:
        value = values[index, ...] if self._is_box and not self.shape else values[index]
        return value.copy() if isinstance(value, np.ndarray) else value

    def to_vector(self, batch: Array, num_envs: int) -> Any:
        array = self._batch_array(batch, num_envs)
        # The usual values, indices and arrays of the same dtype, take a short way.
        if self._counts is not None:
            indices = array.astype(np.int64)
            self._check_range(indices)
            return (indices if self._start is None else indices + self._start).astype(self._env_dtype, copy=False)
        if self._is_box and array.dtype == self._env_dtype:
            return array.copy()
        return value_to_gymnasium(self._space, array)

    def from_vector(self, value: Any, num_envs: int) -> Array:
        array = self._batch_array(value, num_envs)
        if self._counts is not None:
            array = self._to_indices(array)
        elif self._bounds is not None and (self.is_narrow or array.dtype != self.dtype):
            self.check_bounds(array)
        return array.astype(self.dtype)

    def copy(self, batch: Array) -> Array:
        return batch.copy()

    def replace(self, batch: Array, other: Array, mask: npt.NDArray[np.bool_]) -> Array:
        replaced = batch.copy()
        replaced[mask] = other[mask]
        return replaced

    def leaves(self) -> Iterator[LeafCodec]:
        yield self

    def find_nonfinite(self, batch: Array) -> tuple[int, str] | None:
        if self.dtype.kind != "f":
            return None
        finite = np.isfinite(batch)
        # Counting is several times faster than all() on the small batches of most environments.
        if np.count_nonzero(finite) == finite.size:
            return None
        return int(finite.reshape(len(batch), -1).all(axis=1).argmin()), self.path

    def _batch_array(self, value: Any, num_envs: int) -> Array:
        array = np.asarray(value)
        if array.shape != (num_envs, *self.shape) or array.dtype.kind not in self._kinds:
            raise self._mismatch(array, (num_envs, *self.shape))
        return array

    def check_bounds(self, array: Array) -> None:
        """Refuses integers outside of the space, in one value or in a batch.

        Raises:
            OutOfRange: There is one.
        """
        assert self._bounds is not None
        low, high = self._bounds
        outside = (array < low) | (array > high)
        if np.count_nonzero(outside):
            place = tuple(int(axis[0]) for axis in outside.nonzero())
            is_batch = array.ndim > len(self.shape)
            index = place[1:] if is_batch else place
            at = f" at {list(index)}" if index else ""
            raise self._out_of_range(
                f"does not lie in {self._space}", f"{array[place]}{at}", place[0] if is_batch else None
            )

    def _bounded_leaves(self, batch: Array) -> Iterator[tuple[LeafCodec, Array]]:
        if self.is_narrow:
            yield self, batch

    def _to_indices(self, array: Array) -> Array:
        indices = array.astype(np.int64)
        if self._start is not None:
            indices -= self._start
        self._check_range(indices)
        return indices

    def _check_range(self, indices: npt.NDArray[np.int64]) -> None:
        # A negative number seen as an unsigned one is huge, so one comparison checks both ends.
        outside = indices.view(np.uint64) >= self._counts
        if np.count_nonzero(outside):
            row = int(outside.nonzero()[0][0]) if indices.ndim > len(self.shape) else None
            raise self._out_of_range(
                f"is not one of the choices of {self._space}", f"{indices[outside].flat[0]}", row, " (counted from 0)"
            )

    def _out_of_range(self, what: str, received: str, row: int | None, note: str = "") -> OutOfRange:
        error = self._wrong(what, f"{received}{'' if row is None else f' in row {row}'}{note}", OutOfRange)
        error.row = row
        return error

    def _mismatch(self, array: Array, shape: tuple[int, ...]) -> EnvError:
        if array.shape != shape:
            return self._wrong(f"must have shape {shape}", f"shape {array.shape}, dtype {array.dtype}")
        return self._wrong(f"must have a dtype that fits {self.dtype}", f"dtype {array.dtype}")


class TextCodec(LeafCodec):
    """Text, which stays on the host: an object array of ``str``."""

    def write(self, batch: Array, index: int, value: Any) -> None:
        if not isinstance(value, str):
            raise self._wrong("must be a str", f"{value!r} of type {type(value).__name__}")
        batch[index] = value

    def _bounded_leaves(self, batch: Array) -> Iterator[tuple[LeafCodec, Array]]:
        return iter(())

    def from_vector(self, value: Any, num_envs: int) -> Array:
        return self._batch_array(value, num_envs).copy()

    def _batch_array(self, value: Any, num_envs: int) -> Array:
        array = np.asarray(value, object)
        if array.shape != (num_envs,):
            raise self._mismatch(array, (num_envs,))
        return array


class DictCodec(BatchCodec):
    """A dict of codecs; values and batches are dicts with the same keys, in the space's canonical order.

    Args:
        path: Path of the dict in the whole space.
        children: Codec of each key.
    """

    def __init__(self, path: str, children: dict[str, BatchCodec]) -> None:
        super().__init__(path)
        self._children = children
        self.is_narrow = any(child.is_narrow for child in children.values())

    def allocate(self, num_envs: int, allocate: Allocate = np.zeros) -> dict[str, Batch]:
        return {key: child.allocate(num_envs, allocate) for key, child in self._children.items()}

    def write(self, batch: dict[str, Batch], index: int, value: Any) -> None:
        self._check_keys(value)
        for key, child in self._children.items():
            child.write(batch[key], index, value[key])

    def row(self, values: dict[str, Any], index: int) -> dict[str, Any]:
        return {key: child.row(values[key], index) for key, child in self._children.items()}

    def to_vector(self, batch: dict[str, Batch], num_envs: int) -> dict[str, Any]:
        self._check_keys(batch)
        return {key: child.to_vector(batch[key], num_envs) for key, child in self._children.items()}

    def from_vector(self, value: Any, num_envs: int) -> dict[str, Batch]:
        self._check_keys(value)
        return {key: child.from_vector(value[key], num_envs) for key, child in self._children.items()}

    def copy(self, batch: dict[str, Batch]) -> dict[str, Batch]:
        return {key: child.copy(batch[key]) for key, child in self._children.items()}

    def replace(self, batch: Batch, other: Batch, mask: npt.NDArray[np.bool_]) -> dict[str, Batch]:
        return {key: child.replace(batch[key], other[key], mask) for key, child in self._children.items()}

    def leaves(self) -> Iterator[LeafCodec]:
        for child in self._children.values():
            yield from child.leaves()

    def find_nonfinite(self, batch: dict[str, Batch]) -> tuple[int, str] | None:
        found = (child.find_nonfinite(batch[key]) for key, child in self._children.items())
        return next((place for place in found if place is not None), None)

    def _bounded_leaves(self, batch: dict[str, Batch]) -> Iterator[tuple[LeafCodec, Array]]:
        for key, child in self._children.items():
            yield from child._bounded_leaves(batch[key])

    def _check_keys(self, value: Any) -> None:
        keys = value.keys() if hasattr(value, "keys") else None
        if keys is None or set(keys) != self._children.keys():
            received = f"a {type(value).__name__}" if keys is None else f"keys {sorted(map(str, keys))}"
            raise self._wrong(f"must be a dict with the keys {sorted(self._children)}", received)


class TupleCodec(BatchCodec):
    """A tuple of codecs; values and batches are tuples of the same length.

    Args:
        path: Path of the tuple in the whole space.
        children: Codec of each position.
    """

    def __init__(self, path: str, children: Sequence[BatchCodec]) -> None:
        super().__init__(path)
        self._children = tuple(children)
        self.is_narrow = any(child.is_narrow for child in children)

    def allocate(self, num_envs: int, allocate: Allocate = np.zeros) -> tuple[Batch, ...]:
        return tuple(child.allocate(num_envs, allocate) for child in self._children)

    def write(self, batch: tuple[Batch, ...], index: int, value: Any) -> None:
        self._check_length(value)
        for child, part, item in zip(self._children, batch, value, strict=True):
            child.write(part, index, item)

    def row(self, values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
        return tuple(child.row(part, index) for child, part in zip(self._children, values, strict=True))

    def to_vector(self, batch: tuple[Batch, ...], num_envs: int) -> tuple[Any, ...]:
        self._check_length(batch)
        return tuple(child.to_vector(part, num_envs) for child, part in zip(self._children, batch, strict=True))

    def from_vector(self, value: Any, num_envs: int) -> tuple[Batch, ...]:
        self._check_length(value)
        return tuple(child.from_vector(part, num_envs) for child, part in zip(self._children, value, strict=True))

    def copy(self, batch: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return tuple(child.copy(part) for child, part in zip(self._children, batch, strict=True))

    def replace(self, batch: Batch, other: Batch, mask: npt.NDArray[np.bool_]) -> tuple[Batch, ...]:
        return tuple(
            child.replace(part, new, mask) for child, part, new in zip(self._children, batch, other, strict=True)
        )

    def leaves(self) -> Iterator[LeafCodec]:
        for child in self._children:
            yield from child.leaves()

    def find_nonfinite(self, batch: tuple[Batch, ...]) -> tuple[int, str] | None:
        found = (child.find_nonfinite(part) for child, part in zip(self._children, batch, strict=True))
        return next((place for place in found if place is not None), None)

    def _bounded_leaves(self, batch: tuple[Batch, ...]) -> Iterator[tuple[LeafCodec, Array]]:
        for child, part in zip(self._children, batch, strict=True):
            yield from child._bounded_leaves(part)

    def _check_length(self, value: Any) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._children):
            received = f"length {len(value)}" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
            raise self._wrong(f"must be a tuple of {len(self._children)}", received)


def batch_codec(space: gymnasium.Space[Any], path: str = "") -> BatchCodec:
    """Returns the codec of a Gymnasium space.

    Args:
        space: Any Gymnasium space that `rlweave.spaces.from_gymnasium` accepts.
        path: Path of the space in the one that it is part of.

    Raises:
        SpaceError: If rlweave has no counterpart of the space.

    >>> import gymnasium
    >>> codec = batch_codec(gymnasium.spaces.Discrete(3, start=-1))
    >>> codec.split(np.array([0, 2]), 2)
    [np.int64(-1), np.int64(1)]
    """
    if isinstance(space, gymnasium.spaces.Dict):
        keys = sorted(space.spaces)
        return DictCodec(path, {key: batch_codec(space.spaces[key], _join(path, key)) for key in keys})
    if isinstance(space, gymnasium.spaces.Tuple):
        children = [batch_codec(child, _join(path, str(position))) for position, child in enumerate(space.spaces)]
        return TupleCodec(path, children)
    if isinstance(space, gymnasium.spaces.Text):
        return TextCodec(path, space)
    return LeafCodec(path, space)


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key

"""The store: the state of an executor, one cell per variable, and what reads and replaces its arrays."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlweave.backends import Backend, Cell
from rlweave.backends.base import fits
from rlweave.errors import ExecutionError, nearest
from rlweave.graph.binding import initial_random_state
from rlweave.graph.ir import RANDOM_PATHS
from rlweave.tree import tree_map


class Snapshot:
    """The arrays of some cells between two writes, for runs that only read and take no lock.

    The arrays never change, but a write in another thread may reuse their memory. A run that fails for that reason
    takes the arrays again.

    Args:
        store: Where the cells are.
        cells: In the order in which the run takes their arrays.
    """

    __slots__ = ("__weakref__", "_cells", "_store", "arrays")

    def __init__(self, store: Store, cells: tuple[Cell, ...]) -> None:
        self._store, self._cells = store, cells
        self.arrays: tuple[Any, ...] | None = None
        store.add_snapshot(self)

    def take(self) -> tuple[Any, ...]:
        """Waits for the end of a write, and takes the arrays."""
        with self._store.lock:
            self._store.release()
            self.arrays = tuple([cell.value for cell in self._cells])
            return self.arrays


class Store:
    """State of one executor: path -> cell. Several roots may share one.

    Args:
        backend: The device backend.
        host_backend: NumPy.
        rng: Random mode.
        seed: Graph seed.
        float_dtype: "float32", or "float64" on NumPy for finite differences.
    """

    def __init__(
        self, backend: Backend, host_backend: Backend, rng: str, seed: int, float_dtype: str = "float32"
    ) -> None:
        self.backend, self.host_backend, self.rng, self.seed = backend, host_backend, rng, seed
        self.float_dtype = float_dtype
        #: One for all executors over this store.
        self.lock = threading.RLock()
        self.cells: dict[str, Cell] = {}
        self.host_paths: set[str] = set()
        #: Device of what no build has placed; None: no build has named a device, and the backend decides.
        self.default_device: str | None = None
        #: The devices on which something is, by name.
        self.device_places: tuple[str, ...] = ()
        #: Whether the random state moves to the device that draws.
        self.random_travels = False
        self._devices: dict[str, str] = {}
        self._axis_orders: dict[str, tuple[int, ...]] = {}
        #: What runs that take no lock read from.
        self.snapshots: list[weakref.ref[Snapshot]] = []
        #: Counts the beginnings and ends of writes, and the (nested) writes in progress. The guard updates both; reads
        #: without the lock compare them.
        self.version = self.writing = 0
        self.held: tuple[Cell, ...] | None = None
        self.values: tuple[Any, ...] = ()

    @property
    def device(self) -> str | None:
        """The one device besides the host; None: the backend's default, or several."""
        return self.device_places[0] if len(self.device_places) == 1 else None

    @property
    def input_place(self) -> str:
        """Where inputs are that entry functions have made arrays of the framework of."""
        return self.device or self.default_device or "device"

    def place_of(self, path: str) -> str:
        """Where a variable is: "host", a device by name, or "device" where none was named."""
        return "host" if path in self.host_paths else self._devices.get(path, "device")

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Lets writes invalidate a snapshot for as long as it is used."""
        self.snapshots = [*(known for known in self.snapshots if known() is not None), weakref.ref(snapshot)]

    def forget_snapshots(self) -> None:
        """Makes all snapshots take the arrays again; called with the lock."""
        for reference in self.snapshots:
            snapshot = reference()
            if snapshot is not None:
                snapshot.arrays = None

    def hold(self, cells: tuple[Cell, ...]) -> tuple[Any, ...]:
        """Moves the arrays of cells into `values`, which each call of a run replaces.

        The cells are stale until `release`; call that before you read them.
        """
        self.release()
        self.held, self.values = cells, tuple([cell.value for cell in cells])
        return self.values

    def release(self) -> None:
        """Puts held arrays back into their cells."""
        if self.held is not None:
            for cell, value in zip(self.held, self.values, strict=True):
                cell.value = value
            self.held, self.values = None, ()

    def add(
        self,
        path: str,
        value: np.ndarray,
        trainable: bool,
        host: bool,
        device: str | None = None,
        axis_order: tuple[int, ...] | None = None,
    ) -> Cell:
        """Makes the cell of a variable (which takes the array over), or hands out the one that is there."""
        if path in self.cells:
            return self.cells[path]
        backend = self.host_backend if host else self.backend
        if value.dtype == np.float32 and self.float_dtype == "float64":
            value = value.astype(np.float64)
        if host:
            self.host_paths.add(path)
        elif device is not None:
            self._devices[path] = device
        if axis_order is not None and not host and self.backend.strided:
            self._axis_orders[path] = axis_order
            value = _laid_out(value, axis_order)
        array = value if backend is self.host_backend else backend.from_numpy(value, device)
        self.cells[path] = backend.make_cell(path, array, trainable)
        return self.cells[path]

    def track(self, path: str) -> None:
        """Lets gradients be taken by a variable that optimizers do not see (of a frozen component, say)."""
        cell = self.cells.get(path)
        if cell is not None and not cell.trainable and path not in self.host_paths:
            cell.trainable = True
            cell.value = self.backend.tracked(cell.value)

    def add_random(self, path: str, host: bool) -> Cell:
        """Makes the cell of a random state."""
        if path not in self.cells:
            self.cells[path] = Cell(path, self._new_random_state(host, self.seed))
            if host:
                self.host_paths.add(path)
        return self.cells[path]

    def _new_random_state(self, host: bool, seed: int) -> Any:
        backend = self.host_backend if host else self.backend
        state = initial_random_state(backend, self.rng, seed if not host else seed + 0x5EED)
        if self.rng == "portable" and not host and self.device is not None:
            return backend.from_numpy(backend.to_numpy(state), self.device)
        return state

    def reseed(self, seed: int) -> None:
        """Random states as a new store with this seed has them; variables stay."""
        self.release()
        for path in RANDOM_PATHS:
            if path in self.cells:
                self.cells[path].value = self._new_random_state(path in self.host_paths, seed)

    def backend_of(self, path: str) -> Backend:
        return self.host_backend if path in self.host_paths else self.backend

    def to_numpy(self, path: str) -> np.ndarray:
        """A copy of one entry."""
        self.release()
        value, backend = self.cells[path].value, self.backend_of(path)
        if path in RANDOM_PATHS and self.rng == "fast":
            return np.array(backend.random_module().state_to_numpy(value))
        return backend.to_numpy(value)

    def from_numpy(self, path: str, value: np.ndarray) -> Any:
        """The array of an entry from NumPy (not stored yet)."""
        backend, cell = self.backend_of(path), self.cells[path]
        if path in RANDOM_PATHS and self.rng == "fast":
            return backend.random_module().state_from_numpy(value)
        if path in self._axis_orders:
            value = _laid_out(value, self._axis_orders[path])
        device = None if path in self.host_paths else self._devices.get(path, self.device)
        array = backend.from_numpy(np.asarray(value), device)
        return backend.tracked(array) if cell.trainable else array

    def copy_from(self, other: Store, paths: Iterable[str]) -> None:
        """Copies entries of the store of another build of the same components; called with the guard."""
        self.release()
        other.release()
        own, to_numpy = self.backend is self.host_backend, other.backend.to_numpy
        for path in paths:
            held = other.cells[path].value
            value = np.array(held) if path in other.host_paths else to_numpy(held)
            value = np.asarray(value, order="C")
            self.cells[path].value = value if own else self.from_numpy(path, value)

    def load(self, values: Mapping[str, np.ndarray], complete: bool, where: str) -> None:
        """Sets entries by path; called with the guard.

        Args:
            values: Arrays of NumPy.
            complete: Whether there has to be one for each entry.
            where: Whose state it is, for errors.

        Raises:
            ExecutionError: A path is missing, unknown or of another shape or dtype; then nothing has changed.
        """
        self.release()
        unknown = [path for path in values if path not in self.cells]
        if unknown:
            fix = nearest(unknown[0], self.cells)
            raise ExecutionError("unknown variable", where=where, received=repr(unknown[0]), fix=fix)
        missing = [path for path in self.cells if path not in values]
        if complete and missing:
            raise ExecutionError(
                "a variable is missing from the state", where=where, received=repr(missing[0]), fix="save all"
            )
        arrays = {path: self.from_numpy(path, self._fitting(path, value)) for path, value in values.items()}
        for path, array in arrays.items():
            self.cells[path].value = array

    def _fitting(self, path: str, value: Any) -> np.ndarray:
        """A fresh array of an entry's shape and dtype."""
        value = np.asarray(value)
        if path in RANDOM_PATHS and self.rng == "fast":
            return value
        held = self.cells[path].value
        wanted, dtype = tuple(held.shape), np.dtype(self.backend_of(path).dtype_name(held.dtype))
        if value.shape != wanted:
            raise ExecutionError(
                "a variable was given an array of another shape",
                where=path,
                received=f"shape {value.shape}, the variable has {wanted}",
                fix="build both graphs from the same spaces and configuration",
            )
        if not np.can_cast(value.dtype, dtype, "same_kind"):
            raise ExecutionError(
                "a variable was given an array of another dtype",
                where=path,
                received=f"{value.dtype}, the variable has {dtype}",
                fix="convert it where it comes from",
            )
        if not fits(value, dtype):
            raise ExecutionError(
                f"a variable of {dtype} was given numbers that it cannot hold",
                where=path,
                received=f"{value.dtype} from {value.min()} to {value.max()}",
                fix="convert them where they come from, or declare the variable with a wider dtype",
            )
        return value.astype(dtype, order="C", copy=True)


def own(cell: Cell) -> None:
    """Gives a cell a copy of its array, which something else may hold."""
    value = cell.value
    copy = value.clone() if hasattr(value, "clone") else value.copy()
    cell.assign(copy)


def unshared(result: Any, cells: tuple[Cell, ...]) -> Any:
    """Copies what shares memory with a variable on the host: abstract evaluation has not seen this function."""
    held = [cell.value for cell in cells]
    identities = set(map(id, held))

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        if id(leaf) in identities:
            return leaf.copy()
        shares = leaf.base is not None and any(np.may_share_memory(leaf, value) for value in held)
        return leaf.copy() if shares else leaf

    return tree_map(fresh, result)


def _laid_out(value: np.ndarray, axis_order: tuple[int, ...]) -> np.ndarray:
    """An equal array whose axes lie in memory in another order."""
    return np.ascontiguousarray(value.transpose(axis_order)).transpose(np.argsort(axis_order))

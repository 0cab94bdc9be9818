"""What agents with a replay memory offer besides: the memory apart from all other state, since it is large."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from rlweave.graph import GraphExecutor

#: Arrays of a memory from this size on are kept apart; smaller ones (counters, say) go with the rest.
LARGE_BYTES = 1 << 16


class KeepsMemory:
    """The side of an agent whose graph may have a replay memory."""

    #: Name (below the root) of the component that is the memory; None where there is none.
    memory_scope: ClassVar[str | None] = None
    _empty_memory: dict[str, np.ndarray]
    """The small arrays of a memory without a record, by path."""

    @property
    @abstractmethod
    def executor(self) -> GraphExecutor:
        """The graph that learns."""

    def _note_empty_memory(self) -> None:
        """Remembers what an empty memory is; called after a build."""
        large = self._memory_sizes()
        store = self.executor.store
        self._empty_memory = {path: store.to_numpy(path) for path in self._paths_of_memory() if path not in large}

    def _paths_of_memory(self) -> list[str]:
        prefix = f"{self.executor.root.path}/{self.memory_scope}/"
        return [path for path in self.executor.store.cells if path.startswith(prefix)]

    def _memory_sizes(self) -> dict[str, int]:
        """Bytes of the large arrays of the memory, by path."""
        store = self.executor.store
        sizes = {}
        for path in self._paths_of_memory():
            value = store.cells[path].value
            dtype = np.dtype(store.backend_of(path).dtype_name(value.dtype))
            sizes[path] = int(np.prod(value.shape)) * dtype.itemsize
        return {path: size for path, size in sizes.items() if size >= LARGE_BYTES}

    def memory_bytes(self) -> int:
        """Size of the replay memory when it is full."""
        return sum(self._memory_sizes().values())

    def memory_state(self) -> dict[str, np.ndarray]:
        """The large arrays of the replay memory by path, which `state_dict(memory=False)` leaves out.

        They may be the memory's own, so that nothing is copied: read them before the agent does anything else.
        """
        store, paths = self.executor.store, self._memory_sizes()
        store.release()
        return {path: store.cells[path].value if path in store.host_paths else store.to_numpy(path) for path in paths}

    def _with_empty_memory(self, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A state without a memory, completed by an empty one."""
        large = self._memory_sizes()
        if all(path in state for path in large):
            return state
        store = self.executor.store
        zeros = {path: np.zeros_like(store.to_numpy(path)) for path in large}
        return {**state, **zeros, **self._empty_memory}

    def refill_memory(self) -> None:
        """Goes on without what was in the memory: it fills anew before anything is learned from it."""

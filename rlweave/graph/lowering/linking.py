"""Linking: what generated code refers to by name: cells, bound graph functions, checks, the backend's runtime."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.backends import Backend, Cell
from rlweave.backends.base import set_cells, values_of_cells
from rlweave.graph.arguments import InputCheck, disagree
from rlweave.graph.binding import bind_node_function, make_binder
from rlweave.graph.composition import ComponentBase
from rlweave.graph.guard import Guard
from rlweave.graph.ir import HOST_RANDOM, RANDOM, Call, Node, Structure
from rlweave.graph.lowering.source import identifier
from rlweave.graph.store import Snapshot, Store, own, unshared

_serial = itertools.count()


@dataclass
class Run:
    """What a backend is told of a run that it compiles.

    Args:
        states: Which groups of state it takes first: "donated", "kept".
        device: Where it runs, if that was named; None: where its arguments are.
        inputs: For each other argument, nested `OpenArray`s.
        whole: All of it is compiled; False: only the bodies of its loops.
    """

    states: Sequence[str]
    device: str | None
    inputs: Sequence[Any] = ()
    whole: bool = True


class Linker:
    """The objects behind the names of generated code, for all methods of one executor.

    Args:
        root: The root component.
        backend: Where device runs run.
        store: The cells.
        guard: What calls enter that write.
    """

    def __init__(self, root: ComponentBase, backend: Backend, store: Store, guard: Guard) -> None:
        self.root, self.backend, self.store, self.guard = root, backend, store, guard
        #: Runs are pure functions of state and inputs.
        self.functional = backend.functional
        #: Variables of which some method may write rows in place.
        self.inplace_paths: set[str] = set()
        self._serial, self._programs = next(_serial), itertools.count(1)
        self._work_cells: dict[str, Cell] = {}
        self._substituted: dict[tuple[int, str], Cell] = {}
        self._globals: dict[str, Any] | None = None
        self._binders: dict[str, Any] = {}

    def file_name(self, method: str) -> str:
        """What tracebacks call the next program of a method."""
        return f"<rlweave {method} on {self.backend.name} #{self._serial}.{next(self._programs)}>"

    def working_cell(self, path: str, host: bool) -> Cell:
        """The cell that bound graph functions use: the store's own, or one for traced values."""
        host = host or path in self.store.host_paths
        if host or not self.functional:
            return self.store.cells[path]
        if path not in self._work_cells:
            cell = self.store.cells[path]
            work = self.backend.traced_cell(cell)(path, cell.value, cell.trainable)
            work.value = None
            self._work_cells[path] = work
        return self._work_cells[path]

    def substituted_cell(self, node: Call, path: str) -> Cell:
        key = (id(node), path)
        if key not in self._substituted:
            cell = self.store.cells[path]
            fresh = Cell(path, cell.value)
            fresh.value = None
            self._substituted[key] = fresh
        return self._substituted[key]

    def binder(self, node: Node) -> Any:
        """What binds the graph functions of a node's place."""
        placed = node.device is not None and self.backend.creates_on_cpu
        place = "host" if node.host else str(node.device) if placed else "device"
        if place not in self._binders:
            self._binders[place] = self._make_binder(node)
        return self._binders[place]

    def _make_binder(self, node: Node) -> Any:
        store = self.store
        if node.host:  # with a random state of its own on NumPy too: portable draws agree on all backends
            cell = store.add_random(HOST_RANDOM, host=True)
            return make_binder(store.host_backend, store.rng, cell, store.float_dtype)
        store.add_random(RANDOM, host=False)
        cell = self.working_cell(RANDOM, False)
        several = len(store.device_places) > 1
        return make_binder(self.backend, store.rng, cell, store.float_dtype, node.device, draws_on_cpu=several)

    def _cell_of(self, node: Call) -> Callable[[Any], Cell]:
        def cell_of(variable: Any) -> Cell:
            path = variable.path
            if path in node.substitution:
                return self.substituted_cell(node, path)
            return self.working_cell(path, node.host)

        return cell_of

    def bind(self, node: Call) -> Any:
        return bind_node_function(self.binder(node), node, self._cell_of(node))

    def bound_collection(self, node: Call, collection: Any, donate: bool) -> Any:
        return self.binder(node).collection(collection, self._cell_of(node), donate)

    def bound_constant(self, node: Call, value: np.ndarray) -> Any:
        """A NumPy constant as the graph function of a node gets it."""
        return value if node.host else self.backend.constant(value, node.device)

    def input_check(self, method: str, parameter: str, structure: Structure) -> InputCheck:
        return InputCheck(f"{self.root.path}.{method}", parameter, structure, self.backend, self.store.float_dtype)

    def snapshot(self, paths: Sequence[str]) -> Snapshot:
        """What a run that only reads takes of the state."""
        return Snapshot(self.store, tuple([self.store.cells[path] for path in paths]))

    def dtypes(self, name: str) -> dict[str, Any]:
        """What `.dtype` of an input can be, by name; these objects exist once, so that `is` compares them."""
        if name == "float32":
            name = self.store.float_dtype
        found: dict[str, Any] = {f"numpy_{name}": np.dtype(name)}
        if name == "object":  # text is NumPy's everywhere
            return found
        own = self.backend.own_dtype(name)
        if own is not None:
            found[f"{self.backend.name}_{name}"] = own
        return found

    def program_globals(self) -> dict[str, Any]:
        if self._globals is None:
            self._globals = self._program_globals()
        return dict(self._globals)

    def _program_globals(self) -> dict[str, Any]:
        runtime = dict(self.backend.runtime())
        runtime.update(self.backend.boundary(self.store.device))
        if len(self.store.device_places) > 1:
            home = self.backend.transfer(self.store.input_place)
            runtime.update(from_numpy=home, convert_nested=home)
        for device in self.store.device_places:
            runtime[f"to_{identifier(device)}"] = self.backend.transfer(device)
        runtime.update(
            lock=self.store.lock,
            guard=self.guard,
            ndarray=np.ndarray,
            store=self.store,
            disagree=disagree,
            own=own,
            unshared=unshared,
            values_of_cells=values_of_cells,
            set_cells=set_cells,
        )
        return runtime

    def compile_run(self, function: Any, run: Run) -> Any:
        """Compiles the function of a run."""

        @functools.wraps(function)
        def one_at_a_time(*arguments: Any) -> Any:
            with self.store.lock:  # two traces at once would mix their tracers in the working cells
                return function(*arguments)

        traced = one_at_a_time if self.backend.immutable else function
        return self.backend.compile(traced, run.states, run.inputs, device=run.device, whole=run.whole)

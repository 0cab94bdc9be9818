"""`GraphExecutor`: the API methods of a built graph over a store."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlweave.backends import Backend, Cell
from rlweave.backends.base import set_cells, values_of_cells
from rlweave.errors import BuildError, ExecutionError, nearest
from rlweave.graph.arguments import InputCheck, LazyMethod, StaticMethod, disagree
from rlweave.graph.binding import bind_node_function
from rlweave.graph.component import Component, api_methods
from rlweave.graph.current import BUILD_LOCK, collection_paused
from rlweave.graph.guard import Guard, install_guard
from rlweave.graph.ir import HOST_RANDOM, RANDOM, RANDOM_PATHS, Call, Gradients, Graph, Node, Structure, all_nodes
from rlweave.graph.lowering.program import Program, write_program
from rlweave.graph.lowering.source import identifier
from rlweave.graph.passes.ordering import drop_dead_nodes
from rlweave.graph.passes.partition import partition
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Snapshot, Store, make_binder, own, unshared
from rlweave.plugins import extension

_serial = itertools.count()

#: Names that API methods of a root cannot have, besides the methods of `GraphExecutor`.
EXECUTOR_ATTRIBUTES = frozenset(
    (
        *("session", "store", "root", "backend", "functional", "serial", "inplace_paths"),
        *("programs", "graphs", "compilations", "build_seconds"),
    )
)


class UnknownMethodError(ExecutionError, AttributeError):
    """An executor was asked for an API method that it does not have."""


class GraphExecutor:
    """A built component graph: its API methods as functions from NumPy to NumPy, over one store.

    Each API method of the root is an attribute: `executor.update(batch)`. Two keywords are common to all of them:
    `as_numpy=False` hands out arrays of the framework, `with_metrics=True` returns `(result, metrics)`.
    Results share memory with nothing that changes; on JAX they are read-only (`.copy()` makes one to write into).
    Made by `build`.
    """

    def __init__(
        self,
        session: Session,
        store: Store,
        tracer: Any,
        passes: Sequence[Callable[[Graph, GraphExecutor], Any]] = (),
    ) -> None:
        self.session, self.store, self._tracer = session, store, tracer
        #: What changes a graph before it is cut into runs: passes of extensions.
        self._passes = passes
        self.root = cast(Component, session.root)
        self.backend = session.backend
        #: Runs are pure functions of state and inputs.
        self.functional = self.backend.functional
        self.serial = next(_serial)
        self._programs = 0
        self._lock = store.lock
        self._guard = Guard(store)
        install_guard()
        self.inplace_paths: set[str] = set()
        self.programs: dict[tuple[str, tuple[Any, ...]], Program] = {}
        self.graphs: dict[tuple[str, tuple[Any, ...]], Graph] = {}
        self.compilations = 0
        #: Where the time of the build went: "total", "abstract evaluation", "initializers".
        self.build_seconds: dict[str, float] = {}
        self._work_cells: dict[str, Cell] = {}
        self._substituted: dict[tuple[int, str], Cell] = {}
        self._methods = api_methods(type(self.root))
        self._globals: dict[str, Any] | None = None
        self._binders: dict[str, Any] = {}

    # -- what the lowering asks for ------------------------------------------------------------------------------

    def count_program(self) -> int:
        self._programs += 1
        return self._programs

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
            lock=self._lock,
            guard=self._guard,
            ndarray=np.ndarray,
            store=self.store,
            disagree=disagree,
            own=own,
            unshared=unshared,
            values_of_cells=values_of_cells,
            set_cells=set_cells,
        )
        return runtime

    def compile_run(
        self,
        function: Any,
        states: Sequence[str],
        inputs: Sequence[Any] = (),
        whole: bool = True,
        device: str | None = None,
    ) -> Any:
        """Compiles a run for a device (None: where its arguments are)."""

        @functools.wraps(function)
        def one_at_a_time(*arguments: Any) -> Any:
            with self._lock:  # while it is traced its cells hold what is traced, and some runs are called without lock
                return function(*arguments)

        traced = one_at_a_time if self.backend.immutable else function
        return self.backend.compile(traced, states, inputs, device=device, whole=whole)

    # -- methods -------------------------------------------------------------------------------------------------

    def install(self, graph: Graph) -> None:
        """Takes a traced graph in; it is lowered when it is first called."""
        drop_dead_nodes(graph)
        if self.backend.acts_only:
            _refuse_learning(graph, self.root.path, self.backend)
        for change in self._passes:
            change(graph, self)
        partition(graph, self.store)
        self.graphs[graph.name, static_key(graph.static.values())] = graph
        for node in graph.nodes:
            self.inplace_paths.update(node.row_writes)

    def add_method(self, name: str) -> None:
        """Makes an API method of the root an attribute."""
        declared = self._methods[name]
        method = StaticMethod(self, name, declared) if declared.static else LazyMethod(self, name)
        object.__setattr__(self, name, method)

    def program(self, name: str, static: Mapping[str, Any] | None = None) -> Program:
        """The lowered program of a method and static variant, made on first use."""
        static = dict(static or {})
        key = (name, static_key(static.values()))
        found = self.programs.get(key)
        if found is not None:
            return found
        with BUILD_LOCK, self._lock, collection_paused():
            if key not in self.programs:
                # another build of the same components may have given them attributes of its own
                self.session.activate()
                if key not in self.graphs:
                    self._tracer(self, name, static)
                self.compilations += 1
                self.programs[key] = write_program(self, self.graphs[key])
            return self.programs[key]

    def execute(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls an API method by name."""
        return getattr(self, name)(*args, **kwargs)

    def stage(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Copies the arguments of a later call of an API method to where it uses them; returns at once.

        The caller may refill its buffers right after. While a device works on one batch, the next one travels:

            staged = executor.stage("update", batch)
            result = executor.update(*staged)

        Args:
            name: The API method.
            args: Its arguments in order, static ones left out.
            kwargs: Others by name.

        Returns:
            The arguments in the order of the method's parameters; a call with them copies nothing again.

        Raises:
            ExecutionError: No such method, or arguments that do not fit it.
        """
        staged: tuple[Any, ...] = extension("staging").stage(self, name, args, kwargs)
        return staged

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._methods:
            raise UnknownMethodError(
                f"API method {name!r} is not in this graph",
                where=self.root.path,
                received=f"built with methods={sorted({method for method, _ in self.graphs})}",
                fix=f"build(..., methods=[..., {name!r}])",
            )
        raise UnknownMethodError(
            f"the graph has no API method {name!r}", where=self.root.path, fix=nearest(name, self._methods)
        )

    # -- state ---------------------------------------------------------------------------------------------------

    def get_weights(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Copies of variables by path (random state apart).

        Args:
            prefix: Path of a component (or variable): only what is below it. Nothing: all.
        """
        prefix = prefix.rstrip("/")
        with self._lock:
            return {
                path: self.store.to_numpy(path)
                for path in self.store.cells
                if path not in RANDOM_PATHS and (not prefix or path == prefix or path.startswith(prefix + "/"))
            }

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets variables by path; the others stay.

        Raises:
            ExecutionError: Unknown path, or wrong shape; then nothing has changed.
        """
        self._load(weights, complete=False)

    def state_dict(self, leave_out: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Copies of everything in the store, random state included.

        Args:
            leave_out: Paths of what is not copied.
        """
        with self._lock:
            return {path: self.store.to_numpy(path) for path in self.store.cells if path not in leave_out}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores what `state_dict` gave.

        Raises:
            ExecutionError: A path is missing, unknown or of another shape; then nothing has changed.
        """
        self._load(state, complete=True)

    def reseed(self, seed: int) -> None:
        """Begins the random numbers anew, as a new build with this seed does; variables stay as they are."""
        with self._guard:
            self.store.reseed(seed)

    def _load(self, values: Mapping[str, np.ndarray], complete: bool) -> None:
        with self._guard:
            self.store.load(values, complete, self.root.path)

    def code(self, name: str, **static: Any) -> str:
        """The source of the program that runs for an API method (of the given static variant)."""
        if not any(method == name for method, _ in self.graphs) and not (
            name in self._methods and self._methods[name].static
        ):
            self.__getattr__(name)
        return self.program(name, self._complete_static(name, static)).source

    def _complete_static(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        declared = self._methods[name]
        static = {}
        for parameter in declared.static:
            default = declared.signature.parameters[parameter].default
            if parameter in given:
                static[parameter] = given[parameter]
            elif default is not declared.signature.empty:
                static[parameter] = default
            else:
                traced = [graph.static for (method, _), graph in self.graphs.items() if method == name]
                if len(traced) != 1:
                    raise ExecutionError(
                        f"static argument {parameter!r} is needed",
                        where=f"{self.root.path}.{name}",
                        fix=f"pass {parameter}=...",
                    )
                static[parameter] = traced[0][parameter]
        return static

    def explain(self) -> str:
        """The phases of the build as text: components, rounds of assembly, and what each API method became.

        RLgraph's algorithm 1 as it went: which component was complete when, fed by whom, with which variables.
        """
        text: str = extension("explain").explain(self)
        return text

    def draw(self, form: str = "mermaid", method: str | None = None) -> str:
        """The component graph, or what one API method uses of it, as "mermaid" text or "svg"."""
        picture: str = extension("drawing").draw(self, form, method)
        return picture


def _refuse_learning(graph: Graph, root: str, backend: Backend) -> None:
    """Checks that a graph neither writes variables nor takes gradients.

    Args:
        graph: A traced method.
        root: Path of the root component.
        backend: One that only acts.

    Raises:
        BuildError: It does; names the first node that does, and what to do.
    """
    for node in all_nodes(graph):
        written = [path for path in node.writes if path not in RANDOM_PATHS]
        if not isinstance(node, Gradients) and not written:
            continue
        raise BuildError(
            f"the {backend.name} backend only acts, and {graph.name!r} learns",
            where=f"{root}.{graph.name}",
            received=f"{node.label} writes {written[0]}" if written else f"{node.label} takes a gradient",
            fix='learn on backend="jax", "torch" or "tensorflow"; act on this one with build(..., methods=[...]) of '
            f"methods that only act, or with acting_backend={backend.name!r} of an agent",
        )


def static_key(values: Iterable[Any]) -> tuple[tuple[type, Any], ...]:
    """Static arguments as a key: 1, 1.0 and True are three variants."""
    return tuple([(type(value), value) for value in values])

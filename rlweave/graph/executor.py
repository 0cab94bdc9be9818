"""`GraphExecutor`: what users call, the API methods of a built graph over a store.

A method is lowered (`lowering/program.py`) when it is first called. From then on the attribute is the generated
function itself: no code of the executor runs in a call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlweave.backends import LEARNING, Backend
from rlweave.errors import BuildError, ExecutionError, nearest
from rlweave.graph.arguments import LazyMethod, StaticMethod
from rlweave.graph.component import Component, api_methods
from rlweave.graph.current import BUILD_LOCK, collection_paused
from rlweave.graph.guard import Guard, install_guard
from rlweave.graph.ir import RANDOM_PATHS, Gradients, Graph, all_nodes
from rlweave.graph.lowering.linking import Linker
from rlweave.graph.lowering.program import Program, write_program
from rlweave.graph.passes.ordering import drop_dead_nodes
from rlweave.graph.passes.partition import partition
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Store
from rlweave.plugins import extension

#: Names that API methods of a root cannot have, besides the methods of `GraphExecutor`.
EXECUTOR_ATTRIBUTES = frozenset(
    (
        *("session", "store", "root", "backend", "linker"),
        *("programs", "graphs", "compilations", "build_seconds"),
    )
)


#: Changes a traced graph, in place, before it is cut into runs.
Pass = Callable[[Graph, "GraphExecutor"], Any]


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
        passes: Sequence[Pass] = (),
    ) -> None:
        self.session, self.store, self._tracer = session, store, tracer
        #: What changes a graph before it is cut into runs: passes of extensions.
        self._passes = passes
        self.root = cast(Component, session.root)
        self.backend = session.backend
        self._lock = store.lock
        self._guard = Guard(store)
        install_guard()
        #: What the generated code of all methods refers to.
        self.linker = Linker(self.root, self.backend, store, self._guard)
        self.programs: dict[tuple[str, tuple[Any, ...]], Program] = {}
        self.graphs: dict[tuple[str, tuple[Any, ...]], Graph] = {}
        self.compilations = 0
        #: Where the time of the build went: "total", "abstract evaluation", "initializers".
        self.build_seconds: dict[str, float] = {}
        self._methods = api_methods(type(self.root))

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
            self.linker.inplace_paths.update(node.row_writes)

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
                self.programs[key] = write_program(self.linker, self.graphs[key])
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

    def copy_weights(self, source: GraphExecutor, paths: Iterable[str]) -> None:
        """Copies variables from an executor of the same components, on whichever backend; the others stay.

        Args:
            source: Has them under the same paths, of the same shapes: nothing is checked.
            paths: Which ones; of no random state.
        """
        with self._guard:
            self.store.copy_from(source.store, paths)

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
        """Restarts the random numbers as a new build with this seed does; variables keep their values."""
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
        known = {**declared.static_defaults, **given}
        traced = [graph.static for (method, _), graph in self.graphs.items() if method == name]
        if len(traced) == 1:
            known = {**traced[0], **known}
        for parameter in declared.static:
            if parameter not in known:
                raise ExecutionError(
                    f"static argument {parameter!r} is needed",
                    where=f"{self.root.path}.{name}",
                    fix=f"pass {parameter}=...",
                )
        return {parameter: known[parameter] for parameter in declared.static}

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
    *others, last = [f'"{name}"' for name in LEARNING]
    learning = f"{', '.join(others)} or {last}"
    for node in all_nodes(graph):
        written = [path for path in node.writes if path not in RANDOM_PATHS]
        if not isinstance(node, Gradients) and not written:
            continue
        raise BuildError(
            f"the {backend.name} backend only acts, and {graph.name!r} learns",
            where=f"{root}.{graph.name}",
            received=f"{node.label} writes {written[0]}" if written else f"{node.label} takes a gradient",
            fix=f"learn on backend={learning}; act on this one with build(..., methods=[...]) of "
            f"methods that only act, or with acting_backend={backend.name!r} of an agent",
        )


def static_key(values: Iterable[Any]) -> tuple[tuple[type, Any], ...]:
    """Static arguments as a key: 1, 1.0 and True are three variants."""
    return tuple([(type(value), value) for value in values])

"""`build`: from a root component and input spaces to an executor."""

from __future__ import annotations

import difflib
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlweave.backends import compiled_backend, get_backend
from rlweave.backends.base import WIDE
from rlweave.errors import BuildError, nearest
from rlweave.graph.component import Component, api_methods
from rlweave.graph.composition import ComponentBase
from rlweave.graph.current import BUILD_LOCK, collection_paused, tracing
from rlweave.graph.decorators import describe
from rlweave.graph.executor import EXECUTOR_ATTRIBUTES, GraphExecutor
from rlweave.graph.failures import failed_method
from rlweave.graph.ir import HOST_RANDOM, RANDOM, Graph, NotReady, Structure, Unknown, all_nodes, gradients_of
from rlweave.graph.passes.partition import random_travels
from rlweave.graph.session.components import Round
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Store
from rlweave.graph.trace import Trace
from rlweave.graph.values import make_inputs, nested_boxes
from rlweave.graph.variable import VariableCollection
from rlweave.plugins import extension
from rlweave.spaces import Space
from rlweave.tree import has_leaf

InputSpace = Space | Callable[[Any], VariableCollection]


def build(
    root: Component,
    input_spaces: Mapping[str, InputSpace] | None = None,
    *,
    backend: str = "numpy",
    seed: int = 0,
    mode: str = "compiled",
    rng: str = "fast",
    device: str | Mapping[str, str] | None = None,
    methods: Iterable[str] | None = None,
    static: Mapping[str, Mapping[str, Any]] | None = None,
    store: Store | None = None,
    float_dtype: str = "float32",
    torch_compile: bool = False,
    replicas: int | Sequence[str] | None = None,
) -> GraphExecutor:
    """Builds a component graph.

    Args:
        root: The component whose API methods the executor offers.
        input_spaces: Space of each API input by parameter name, or by "method.parameter" where methods differ. A
            function of the root that returns a variable collection stands for arrays by variable path (gradients).
        backend: "numpy", "torch", "jax" or "tensorflow"; "onnx" for methods that only act.
        seed: Seeds initial weights (by variable path) and random state.
        mode: "compiled", or "eager": API methods run step by step, so that a debugger stops in them.
        rng: "fast", or "portable": the same random numbers on every backend.
        device: Device of the root, or devices by component path ("" is the root), where the longest path wins: "host",
            or a device of the backend ("cpu:1", "cuda:0"). Variables live on the device of their component; graph
            functions run where the variables are that they touch, or else where their component is placed. What is
            needed elsewhere goes through transfer nodes. A body (scan, cond, ...) and what is differentiated have
            to be on one device.
        methods: API methods to build; all by default.
        static: Static arguments by method, to trace those variants at build time.
        store: Store of another root to share state with.
        float_dtype: "float64" on NumPy evaluates the whole graph in double precision.
        torch_compile: Hand device runs to torch.compile(fullgraph=True).
        replicas: Devices over which batches are split for what is differentiated, or how many ("jax" and "torch"). The
            gradients are averaged, so that the result is that of one device as long as losses are means over the batch
            (see `rlweave.extensions.replication`). A batch has to divide evenly.

    Returns:
        The executor.

    Raises:
        BuildError: The graph cannot be built; the message names component, method, spaces and fix.
    """
    if mode not in ("compiled", "eager"):
        raise BuildError("unknown mode", received=repr(mode), fix='use "compiled" or "eager"')
    for name, given in (("replicas", replicas), ("torch_compile", torch_compile or None)):
        if mode == "eager" and given is not None:
            raise BuildError(
                "eager mode runs a graph as it is written, without passes",
                received=f"mode='eager' with {name}={given!r}",
                fix="leave one of them out",
            )
    with BUILD_LOCK, collection_paused():
        start = time.perf_counter()
        chosen = get_backend(backend)
        if float_dtype not in ("float32", "float64") or (float_dtype == "float64" and not chosen.on_host):
            received = f"{float_dtype} on {backend}"
            raise BuildError("float64 graphs run on NumPy only", received=received, fix="use float32")
        if torch_compile:
            compiling = compiled_backend(backend)
            if compiling is None:
                raise BuildError("torch_compile needs the torch backend", received=backend, fix='backend="torch"')
            chosen = compiling
        passes: list[Callable[[Graph, GraphExecutor], Any]] = []
        devices: Sequence[str] = ()
        if replicas is not None:
            replication = extension("replication")
            devices = replication.replica_devices(replicas, chosen)
            passes.append(functools.partial(replication.replicate, devices=devices))
        session = Session(root, chosen, rng, device)
        if devices or session.names_devices():
            placement = extension("placement")
            placement.name_devices(session, devices)
            if session.default_device is not None:
                passes.append(placement.place_nodes)
        if len(session.device_places) > 1 and torch_compile:
            raise BuildError(
                "torch_compile compiles for one device",
                received=f"devices {list(session.device_places)}",
                fix="leave torch_compile out, or place all on one device",
            )
        builder = _Builder(session, dict(input_spaces or {}), methods, dict(static or {}))
        builder.run()
        if store is not None:
            _check_store(store, session, rng, float_dtype)
        else:
            store = Store(chosen, get_backend("numpy"), rng, seed, float_dtype)
        initial_start = time.perf_counter()
        with store.lock:
            _fill_store(session, store, builder.graphs)
        initializer_seconds = time.perf_counter() - initial_start
        kind: type[GraphExecutor] = extension("eager").EagerExecutor if mode == "eager" else GraphExecutor
        executor = kind(session, store, builder.trace_later, passes)
        for graph in builder.graphs:
            executor.install(graph)
        for name in builder.wanted:
            executor.add_method(name)
        executor.build_seconds = {
            "total": time.perf_counter() - start,
            "abstract evaluation": session.evaluation_seconds,
            "initializers": initializer_seconds,
        }
        return executor


def _check_store(store: Store, session: Session, rng: str, float_dtype: str) -> None:
    """Refuses a store whose arrays or random state another graph cannot use."""
    ours = (session.backend.name, rng, float_dtype, *session.device_places)
    theirs = (store.backend.name, store.rng, store.float_dtype, *store.device_places)
    if ours != theirs:
        raise BuildError(
            "a store belongs to graphs of another kind",
            where="build(store=...)",
            received=f"backend, rng, float_dtype and devices {ours}; the store has {theirs}",
            fix="build both graphs alike, or move weights with get_weights and set_weights",
        )


def _fill_store(session: Session, store: Store, graphs: Sequence[Graph]) -> None:
    """Creates the cells of all variables, where the nodes that touch them run."""
    if not store.cells:
        store.default_device, store.device_places = session.default_device, session.device_places
        store.random_travels = random_travels(store.backend, session.device_places)
    touched: dict[str, set[bool]] = {}
    owner: dict[tuple[str, bool], str] = {}
    random: set[str] = set()
    for graph in graphs:
        for node in graph.nodes:
            for path in (*node.reads, *node.writes):
                if path in (RANDOM, HOST_RANDOM):
                    random.add(path)
                else:
                    touched.setdefault(path, set()).add(node.host)
                    owner[path, node.host] = node.label
    differentiated = {p for graph in graphs for gradient in gradients_of(all_nodes(graph)) for p in gradient.paths}
    for variable in session.all_variables():
        path = variable.path
        device = session.place_of(variable)
        places = touched.get(path, {device == "host"})
        if len(places) > 1:
            raise BuildError(
                "a variable is used by host and device nodes",
                where=path,
                received=f"host: {owner[path, True]}, device: {owner[path, False]}",
                fix="pass its value as a result of an API method between them",
            )
        if path in store.cells:
            held = tuple(store.cells[path].value.shape)
            if held != variable.shape:
                raise BuildError(
                    "a variable in a shared store has another shape",
                    where=path,
                    received=f"{held} in the store, {variable.shape} here",
                    fix="build both graphs from the same spaces and configuration",
                )
        else:
            host = next(iter(places))
            if not host and not session.backend.wide and variable.dtype in WIDE:
                raise BuildError(
                    f"the {session.backend.name} backend computes in 32 bits here, and a variable is {variable.dtype}",
                    where=path,
                    received=repr(variable.space),
                    fix='declare it with dtype="int32", keep its component on the host (device="host"), or use '
                    'backend="torch" or "numpy"',
                )
            device = session.default_device if device == "host" else device
            trainable = (variable.trainable and variable.owner.trainable) or path in differentiated
            store.add(path, variable.initial_value(store.seed), trainable, host, device, variable.axis_order)
    for path in differentiated:
        store.track(path)
    store.add_random(RANDOM, host=False)
    if HOST_RANDOM in random or any(node.host for graph in graphs for node in graph.nodes):
        store.add_random(HOST_RANDOM, host=True)


class _Builder:
    def __init__(
        self,
        session: Session,
        input_spaces: dict[str, InputSpace],
        methods: Iterable[str] | None,
        static: dict[str, Mapping[str, Any]],
    ) -> None:
        self.session, self.input_spaces, self.static = session, input_spaces, static
        self.declared = api_methods(type(session.root))
        offered = [name for name in self.declared if session.root.offers(name)]
        self.wanted = offered if methods is None else list(methods)
        for name in (*self.wanted, *static):
            if name not in self.declared:
                raise BuildError(
                    f"{type(session.root).__name__} has no API method {name!r}",
                    where=session.root.path,
                    fix=nearest(name, self.declared),
                )
        if not self.wanted:
            raise BuildError("the root has no API methods", where=session.root.path, fix="declare one with @api")
        self.graphs: list[Graph] = []
        self._check_input_names()

    def _check_input_names(self) -> None:
        known = {p for m in self.declared for p in self.declared[m].parameters}
        known |= {f"{m}.{p}" for m in self.declared for p in self.declared[m].parameters}
        for name, space in self.input_spaces.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise BuildError(
                    f"unknown input {name!r}: no API method of the root has such a parameter",
                    where=self.session.root.path,
                    received=repr(space),
                    fix=f"did you mean {close[0]!r}?"
                    if close
                    else f"parameters are {sorted(p for p in known if '.' not in p)}",
                )

        for method in self.wanted:
            declared = self.declared[method]
            for parameter in declared.parameters:
                if parameter in ("as_numpy", "with_metrics"):
                    raise BuildError(
                        f"a parameter is called {parameter!r}, which is a keyword of every method of an executor",
                        where=f"{self.session.root.path}.{method}",
                        fix="choose another name",
                    )
                if parameter in declared.static and f"{method}.{parameter}" in self.input_spaces:
                    raise BuildError(
                        f"a space was given for the static argument {parameter!r}",
                        where=f"{self.session.root.path}.{method}",
                        fix=f"pass a constant instead: build(..., static={{{method!r}: {{{parameter!r}: ...}}}})",
                    )
            # `draw` is a natural name of a random draw; `rlweave.extensions.drawing.draw` is there then
            if method != "draw" and (hasattr(GraphExecutor, method) or method in EXECUTOR_ATTRIBUTES):
                raise BuildError(
                    f"an API method of the root has the name of an attribute of executors, {method!r}",
                    where=self.session.root.path,
                    fix="choose another name, or leave it out: build(..., methods=[...])",
                )

    def space_of(self, method: str, parameter: str) -> Any:
        return self.input_spaces.get(f"{method}.{parameter}", self.input_spaces.get(parameter))

    def run(self) -> None:
        """Traces all methods, in rounds, until all of them are known."""
        session = self.session
        for component in session.components:
            session.complete_if_possible(component)
        session.rounds.append(Round((), (), tuple(session.completion)))
        waiting: list[tuple[str, dict[str, Any]]] = []
        for name in self.wanted:
            static = self._static_for(name)
            if static is not None:
                waiting.append((name, static))
        done: dict[str, Graph] = {}
        while waiting:
            complete_before = len(session.completion)
            session.unknown_inputs.clear()
            again: list[tuple[str, dict[str, Any]]] = []
            reasons: dict[str, str] = {}
            for name, static in waiting:
                graph, reason = self.trace(name, static)
                if graph is None:
                    again.append((name, static))
                    reasons[name] = reason
                else:
                    done[name + repr(static)] = graph
                    self.graphs.append(graph)
            completed = tuple(session.completion[complete_before:])
            if again and len(again) == len(waiting) and not completed:
                self._stuck(reasons)
            known = tuple([name for name, static in waiting if (name, static) not in again])
            session.rounds.append(Round(known, tuple(reasons.items()), completed))
            waiting = again
        session.recordings.clear()
        order = {name: i for i, name in enumerate(self.wanted)}
        self.graphs.sort(key=lambda graph: order[graph.name])

    def _static_for(self, name: str) -> dict[str, Any] | None:
        """Static arguments to trace at build time: given ones, defaults; None when some are not known yet."""
        declared = self.declared[name]
        static: dict[str, Any] = {}
        given = self.static.get(name, {})
        for parameter in given:
            if parameter not in declared.static:
                raise BuildError(
                    f"{parameter!r} is no static argument of {name!r}",
                    where=self.session.root.path,
                    fix=nearest(parameter, declared.static) if declared.static else "declare it with @api(static=...)",
                )
        for parameter in declared.static:
            default = declared.signature.parameters[parameter].default
            if parameter in given:
                static[parameter] = given[parameter]
            elif default is not declared.signature.empty:
                static[parameter] = default
            else:
                return None
        return static

    def trace(self, name: str, static: Mapping[str, Any]) -> tuple[Graph | None, str]:
        """Traces one method; (None, reason) when it has to be traced again."""
        declared, root = self.declared[name], self.session.root
        graph = Graph(name, tuple(p for p in declared.parameters if p not in declared.static), static=dict(static))
        arguments: dict[str, Structure] = dict(static)
        for parameter in graph.parameters:
            space = self.space_of(name, parameter)
            default = declared.signature.parameters[parameter].default
            if space is None:
                if default is not declared.signature.empty:
                    arguments[parameter] = default
                    continue
                raise BuildError(
                    f"no space for input {parameter!r}",
                    where=f"{root.path}.{name}",
                    received=f"input spaces for {sorted(self.input_spaces)}",
                    fix=f'add {{"{parameter}": <space>}} to input_spaces, or leave the method out with methods=[...]',
                )
            if callable(space):
                with tracing(Trace(self.session, graph)):
                    try:
                        collection = space(root)
                    except NotReady as reason:
                        return None, str(reason)
                structure: Structure = {path: variable.space for path, variable in collection.items()}
                graph.inputs[parameter] = arguments[parameter] = make_inputs(structure, parameter)
                continue
            if not isinstance(space, Space):
                raise BuildError(
                    f"the space of input {parameter!r} is no space",
                    where=f"{root.path}.{name}",
                    received=describe(space),
                    fix="pass a FloatBox, IntBox, BoolBox, Dict or Tuple",
                )
            # float64 loses digits there, which nobody relies on; an integer would become another one
            backend = self.session.backend
            if not backend.wide and any(leaf.dtype == "int64" for leaf in space.flatten().values()):
                raise BuildError(
                    f"the {backend.name} backend computes in 32 bits here, and input {parameter!r} is int64",
                    where=f"{root.path}.{name}",
                    received=repr(space),
                    fix='use a space of 32 bits, or backend="torch" or "numpy"',
                )
            self.session.feature_sizes.update(space.feature_sizes())
            graph.inputs[parameter] = arguments[parameter] = make_inputs(nested_boxes(space), parameter)
        graph.parameters = tuple(graph.inputs)
        trace = Trace(self.session, graph)
        with tracing(trace):
            try:
                graph.outputs = trace.call(root, declared, (), arguments)
            except NotReady as reason:
                return None, str(reason)
            except KeyError as error:
                failed = failed_method(f"{root.path}.{name}", error)
                if failed is None:
                    raise
                raise failed from error
        if trace.unknown or has_leaf(graph.outputs, Unknown):
            return None, ""
        return graph, ""

    def trace_later(self, executor: GraphExecutor, name: str, static: Mapping[str, Any]) -> None:
        """Traces a static variant at its first call."""
        with BUILD_LOCK:
            self.session.activate()
            self.session.recordings.clear()
            graph, reason = self.trace(name, static)
            if graph is None:
                again, reason = self.trace(name, static)
                if again is None:
                    self._stuck({name: reason})
                graph = again
            assert graph is not None
            self.session.recordings.clear()
            with executor.store.lock:
                _fill_store(self.session, executor.store, [*executor.graphs.values(), graph])
            executor.install(graph)

    def _stuck(self, reasons: dict[str, str]) -> None:
        session = self.session
        lines = []
        for component in session.components:
            state = session.states[id(component)]
            if state.complete:
                continue
            missing = [name for name in state.needs if name not in state.inputs]
            lines += [f"{component.path}: {self._why_missing(component, name)}" for name in missing]
        lines += [f"{session.root.path}.{name} stopped at: {reason}" for name, reason in reasons.items() if reason]
        details = "\n    ".join(lines)
        raise BuildError(
            "the build is stuck: no component became complete in the last round",
            where=", ".join(f"{session.root.path}.{name}" for name in reasons),
            received="\n    " + details,
            fix="feed each missing input from an API method that is called with known spaces, or take the parameter "
            "out of create_variables",
        )

    def _why_missing(self, component: ComponentBase, name: str) -> str:
        declared = api_methods(type(component))
        suppliers = [method for method, d in declared.items() if name in d.parameters]
        if not suppliers:
            parameters = sorted({p for d in declared.values() for p in d.parameters})
            hint = nearest(name, parameters) if parameters else "it has none"
            return f"create_variables needs {name!r}, which is no parameter of its API methods; {hint}"
        circle = self.session.unknown_inputs.get((id(component), name))
        if circle:
            return (
                f"input {name!r} is only ever passed values that are unknown themselves, in a circle: "
                f"{', '.join(dict.fromkeys(circle))}"
            )
        return (
            f"input {name!r} is never fed; API methods that would supply it: {', '.join(suppliers)}, called by nobody"
        )

"""`build`: from a root component and input spaces to an executor.

Read `build` first: composition (`session/components.py`), assembly (`assembly.py`), the store (`store.py`) and the
executor (`executor.py`) are a few lines each.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlweave.backends import Backend, compiled_backend, get_backend
from rlweave.backends.base import WIDE
from rlweave.errors import BuildError
from rlweave.graph.assembly import Assembly, InputSpace
from rlweave.graph.component import Component
from rlweave.graph.current import BUILD_LOCK, collection_paused
from rlweave.graph.executor import GraphExecutor, Pass
from rlweave.graph.ir import HOST_RANDOM, RANDOM, Graph, all_nodes, gradients_of
from rlweave.graph.passes.partition import random_travels
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Store
from rlweave.plugins import extension


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
    with BUILD_LOCK, collection_paused():
        start = time.perf_counter()
        _check_mode(mode, replicas, torch_compile)
        # composition: the components, their owners and places
        session = Session(root, _choose_backend(backend, float_dtype, torch_compile), rng, device)
        passes = _passes_of_extensions(session, replicas)
        if len(session.device_places) > 1 and torch_compile:
            raise BuildError(
                "torch_compile compiles for one device",
                received=f"devices {list(session.device_places)}",
                fix="leave torch_compile out, or place all on one device",
            )
        # assembly: each API method becomes a graph
        assembly = Assembly(session, dict(input_spaces or {}), methods, dict(static or {}))
        assembly.run()
        # the store: each variable gets its initial value
        initial_start = time.perf_counter()
        if store is not None:
            _check_store(store, session, rng, float_dtype)
        else:
            store = Store(session.backend, get_backend("numpy"), rng, seed, float_dtype)
        with store.lock:
            _fill_store(session, store, assembly.graphs)
        initializer_seconds = time.perf_counter() - initial_start
        # the executor: passes over the graphs now, code when a method is first called
        kind: type[GraphExecutor] = extension("eager").EagerExecutor if mode == "eager" else GraphExecutor
        executor = kind(session, store, functools.partial(_trace_variant, assembly), passes)
        for graph in assembly.graphs:
            executor.install(graph)
        for name in assembly.wanted:
            executor.add_method(name)
        executor.build_seconds = {
            "total": time.perf_counter() - start,
            "abstract evaluation": session.evaluation_seconds,
            "initializers": initializer_seconds,
        }
        return executor


def _check_mode(mode: str, replicas: int | Sequence[str] | None, torch_compile: bool) -> None:
    if mode not in ("compiled", "eager"):
        raise BuildError("unknown mode", received=repr(mode), fix='use "compiled" or "eager"')
    for name, given in (("replicas", replicas), ("torch_compile", torch_compile or None)):
        if mode == "eager" and given is not None:
            raise BuildError(
                "eager mode runs a graph as it is written, without passes",
                received=f"mode='eager' with {name}={given!r}",
                fix="leave one of them out",
            )


def _choose_backend(name: str, float_dtype: str, torch_compile: bool) -> Backend:
    chosen = get_backend(name)
    if float_dtype not in ("float32", "float64") or (float_dtype == "float64" and not chosen.on_host):
        received = f"{float_dtype} on {name}"
        raise BuildError("float64 graphs run on NumPy only", received=received, fix="use float32")
    if not torch_compile:
        return chosen
    compiling = compiled_backend(name)
    if compiling is None:
        raise BuildError("torch_compile needs the torch backend", received=name, fix='backend="torch"')
    return compiling


def _passes_of_extensions(session: Session, replicas: int | Sequence[str] | None) -> list[Pass]:
    """What changes graphs for replicas, and for devices that were named; names the devices in the session."""
    passes: list[Pass] = []
    devices: Sequence[str] = ()
    if replicas is not None:
        replication = extension("replication")
        devices = replication.replica_devices(replicas, session.backend)
        passes.append(functools.partial(replication.replicate, devices=devices))
    if devices or session.names_devices():
        placement = extension("placement")
        placement.name_devices(session, devices)
        if session.default_device is not None:
            passes.append(placement.place_nodes)
    return passes


def _trace_variant(assembly: Assembly, executor: GraphExecutor, name: str, static: Mapping[str, Any]) -> None:
    """Traces a static variant at its first call."""
    with BUILD_LOCK:
        graph = assembly.trace_variant(name, static)
        with executor.store.lock:
            _fill_store(assembly.session, executor.store, [*executor.graphs.values(), graph])
        executor.install(graph)


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

"""Eager mode: API methods run step by step on arrays, so that a debugger stops in them.

Every call traces the API method anew, and each node is evaluated as soon as it is made. Gradients come from a replay of
the differentiated path with the arrays that its nodes have read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlweave.extensions.placement import place_node
from rlweave.graph.arguments import disagree
from rlweave.graph.binding import fill_arguments
from rlweave.graph.current import current_trace, tracing
from rlweave.graph.differentiation import full_path
from rlweave.graph.executor import GraphExecutor, static_key
from rlweave.graph.ir import RANDOM, Call, Cond, Gradients, Graph, Node, Scan, Structure, Value, VMap, While, all_nodes
from rlweave.graph.store import own
from rlweave.graph.trace import Trace
from rlweave.graph.values import make_inputs, spaces_of
from rlweave.spaces import Dim
from rlweave.tree import flatten_tree, leaves_of, tree_leaves, tree_map

Environment = dict[int, Any]

#: Looks at a node with the arrays of its inputs, in order, before it runs; what it returns is called with those of its
#: results after.
Watcher = Callable[[Node, list[Any]], Callable[[list[Any]], None]]


class EagerExecutor(GraphExecutor):
    """An executor whose API methods run in Python, node by node; slow, and open to debuggers and checks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.linker.functional = False
        #: Set by `watched`.
        self._watcher: Watcher | None = None

    def add_method(self, name: str) -> None:
        object.__setattr__(self, name, _EagerMethod(self, name))


@contextmanager
def watched(executor: EagerExecutor, watcher: Watcher) -> Iterator[None]:
    """Has a function look at every node that runs, those in bodies of loops and conditions too."""
    executor._watcher = watcher
    try:
        yield
    finally:
        executor._watcher = None


class _EagerMethod:
    def __init__(self, executor: EagerExecutor, name: str) -> None:
        self._executor, self._name = executor, name

    def __call__(self, *args: Any, as_numpy: bool = True, with_metrics: bool = False, **kwargs: Any) -> Any:
        executor, name = self._executor, self._name
        declared = executor._methods[name]
        arguments = declared.bind(executor.root, args, kwargs)
        static = {parameter: arguments[parameter] for parameter in declared.static}
        key = (name, static_key(static.values()))
        if key not in executor.graphs:
            executor._tracer(executor, name, static)
        built = executor.graphs[key]
        with executor._guard:
            executor.session.activate()
            graph = Graph(name, built.parameters, static=static)
            trace = EagerTrace(executor, graph)
            with tracing(trace), executor.backend.eager_scope():
                for parameter in built.parameters:
                    structure = built.inputs[parameter]
                    check = executor.linker.input_check(name, parameter, structure)
                    graph.inputs[parameter] = make_inputs(spaces_of(structure), parameter)
                    trace.give(graph.inputs[parameter], check(arguments[parameter]))
                    arguments[parameter] = graph.inputs[parameter]
                _check_sizes(f"{executor.root.path}.{name}", graph.inputs, trace.arrays)
                result = trace.call(executor.root, declared, (), arguments)

            def hand_out(leaf: Any) -> Any:
                if not isinstance(leaf, Value):
                    return leaf
                array = trace.arrays[id(leaf)]
                if as_numpy:
                    return (
                        np.array(array)
                        if isinstance(array, np.ndarray | np.generic)
                        else executor.backend.to_numpy(array)
                    )
                if executor.backend.wraps:
                    return executor.backend.boundary()["handed"](array)
                return executor.backend.runtime()["copy"](array)

            outputs = tree_map(hand_out, result)
            if with_metrics:
                return outputs, {metric.name: float(trace.arrays[id(metric.value)]) for metric in graph.metrics}
            return outputs


class EagerTrace(Trace):
    """A trace that evaluates every node when it is made; bodies of scans and conditions are traced, then run."""

    def __init__(self, executor: EagerExecutor, graph: Graph) -> None:
        super().__init__(executor.session, graph)
        self.executor = executor
        #: What each value is right now, by its identity.
        self.arrays: Environment = {}
        self.interpreter = Interpreter(executor, self.arrays)

    def give(self, structure: Structure, arrays: Any) -> None:
        """Sets the arrays of inputs, made arrays of the backend."""

        def give(value: Any, array: Any) -> None:
            if isinstance(value, Value):
                as_it_is = not isinstance(array, np.ndarray) or array.dtype == object  # text stays on the host
                self.arrays[id(value)] = array if as_it_is else self.executor.backend.from_numpy(array)

        tree_map(give, structure, arrays)

    def emit(self, node: Node) -> None:
        super().emit(node)
        place_node(node, self.executor.store)
        environment: Environment = {}
        self.interpreter.run_node(node, environment)
        self.arrays.update({id(value): environment[id(value)] for value in node.values()})


class Interpreter:
    """Evaluates nodes one by one, with arrays by value, and keeps what each node has read for gradients."""

    def __init__(self, executor: EagerExecutor, arrays: Environment) -> None:
        self.executor, self.backend, self.linker, self.arrays = executor, executor.backend, executor.linker, arrays
        self.runtime = executor.backend.runtime()
        self._in_vmap = False
        #: By identity of a node: the arrays of the variables that it has read, by path.
        self._read: dict[int, dict[str, Any]] = {}

    def array(self, value: Value, environment: Environment) -> Any:
        return environment[id(value)] if id(value) in environment else self.arrays[id(value)]

    def fill(self, structure: Structure, environment: Environment) -> Structure:
        return tree_map(lambda x: self.array(x, environment) if isinstance(x, Value) else x, structure)

    def run_node(self, node: Node, environment: Environment, recorded: dict[str, Any] | None = None) -> None:
        """Evaluates one node; its results go into the environment.

        Args:
            node: The node.
            environment: Arrays by value id.
            recorded: Arrays of variables to read instead of the store's (replays).
        """
        watcher, after = self.executor._watcher, None
        if watcher is not None and recorded is None and not self._in_vmap:
            after = watcher(node, [self.array(value, environment) for value in node.inputs()])
        if isinstance(node, Gradients):
            result = self.gradient(node, environment)
        else:
            cells = [self.executor.store.cells[path] for path in node.reads]
            if recorded is None:
                self._read[id(node)] = {cell.path: cell.value for cell in cells}
            result = self._run(node, environment)
        _place(node.result, result, environment)
        if after is not None:
            after([environment[id(value)] for value in node.values()])

    def _run(self, node: Node, environment: Environment) -> Any:
        if isinstance(node, Call):
            return self._call(node, environment)
        if isinstance(node, Scan):
            carry, xs = self.fill(node.args, environment)
            return self._loop(node, environment, carry, xs)
        if isinstance(node, Cond):
            body = node.bodies["true" if bool(self.array(node.args[0], environment)) else "false"]
            return self.run_graph(body, (), environment)
        if isinstance(node, While):
            carry = self.fill(node.args[0], environment)
            while bool(self.run_graph(node.test, (carry,), environment)):
                carry = self.run_graph(node.body, (carry,), environment)
            return carry
        if not isinstance(node, VMap):
            raise AssertionError(f"a {node.kind} node outside of its pass")
        size = node.axis_size
        arguments = self.fill(node.args, environment)
        if not isinstance(size, int):
            axes = zip(node.args, node.in_axes, strict=True)
            value, axis = next((v, a) for arg, a in axes if a is not None for v in leaves_of(arg, Value))
            size = self.array(value, environment).shape[axis]
        body = node.body
        self._in_vmap = True
        try:
            return self.runtime["vmap"](
                lambda *rows: self.run_graph(body, rows, environment), node.in_axes, size, arguments
            )
        finally:
            self._in_vmap = False

    def _call(self, node: Call, environment: Environment) -> Any:
        for path, value in node.substitution.items():
            self.linker.substituted_cell(node, path).value = self.array(value, environment)
        function = self.linker.bind(node)
        arrays = [self.array(value, environment) for value in leaves_of((node.args, node.kwargs), Value)]
        if node.host:
            arrays = [x if isinstance(x, np.ndarray) else self.backend.to_numpy(x) for x in arrays]
        elif not self.backend.on_host:
            arrays = [
                self.backend.from_numpy(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x for x in arrays
            ]
            if node.device is not None:
                arrays = self.backend.transfer(node.device)(arrays)
        if self.executor.store.random_travels and RANDOM in node.reads:
            cell = self.executor.store.cells[RANDOM]
            cell.value = self.backend.transfer(str(node.device))(cell.value)
        args, kwargs = fill_arguments(
            node,
            arrays,
            lambda c: self.linker.bound_collection(node, c, False),
            lambda x: self.linker.bound_constant(node, x),
        )
        result = function(*args, **kwargs)
        for path in node.aliased_writes:
            own(self.executor.store.cells[path])
        if node.aliases:
            copy = np.array if node.host else self.runtime["copy"]
            result = _map_arrays(copy, result)
        return result

    def _loop(self, node: Scan, environment: Environment, carry: Any, xs: Any) -> Any:
        leaves = [leaf for leaf in tree_leaves(xs) if not isinstance(leaf, str)]
        steps = leaves[0].shape[0] if leaves else node.length or 0
        outputs = []
        for step in range(steps):
            row = _map_arrays(operator.itemgetter(step), xs)
            carry, y = self.run_graph(node.body, (carry, row), environment)
            outputs.append(y)
        if not outputs:
            return carry, tree_map(self._no_rows, node.result[1])
        return carry, tree_map(lambda *steps: self.backend.ops.stack(list(steps)), *outputs)

    def _no_rows(self, leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        return self.backend.ops.zeros(tuple(a if isinstance(a, int) else 0 for a in leaf.space.axes), leaf.space.dtype)

    def run_graph(self, graph: Graph, arguments: Sequence[Any], environment: Environment) -> Any:
        """Evaluates a body on arrays; values from outside come from the environment."""
        inner = dict(environment)
        for parameter, argument in zip(graph.parameters, arguments, strict=True):
            _place(graph.inputs[parameter], argument, inner)
        for node in graph.nodes:
            self.run_node(node, inner)
        return self.fill(graph.outputs, inner)

    def read_by(self, node: Node) -> dict[str, Any]:
        """The arrays of the variables that a node has read, by path."""
        return self._read[id(node)]

    def evaluate(self, node: Node, environment: Environment, variables: dict[str, Any]) -> None:
        """Evaluates a node again, unwatched, with given arrays of its variables; the store stays as it is.

        Args:
            node: Any but a gradient.
            environment: Arrays by value id; its results go there.
            variables: Arrays by path.
        """
        cells, watcher = self.executor.store.cells, self.executor._watcher
        touched = {path: cells[path].value for path in (*node.reads, *node.writes)}
        self.executor._watcher = None
        try:
            for path, array in variables.items():
                cells[path].value = array
            self.run_node(node, environment, variables)
        finally:
            self.executor._watcher = watcher
            for path, array in touched.items():
                cells[path].value = array

    # -- gradients -----------------------------------------------------------------------------------------------

    def gradient(self, node: Gradients, environment: Environment, around: dict[str, Any] | None = None) -> Any:
        """The derivatives of a gradient node, by zeros that are added to what its path reads.

        Args:
            node: The gradient.
            environment: Arrays by value id.
            around: What an outer derivative adds to variables, by path.
        """
        around = around or {}
        path = self._ordered(node)
        values = list({id(v): v for v in node.by_values or ()}.values())
        paths = tuple(node.paths)
        zeros_like = self.backend.ops.zeros_like

        def loss(by_paths: Any, by_values: Any) -> Any:
            added = {id(v): x for v, x in zip(values, by_values, strict=True)}
            inner = dict(environment)
            inner.update({id(v): self.array(v, environment) + added[id(v)] for v in values})
            moved = {p: around[p] + x if p in around else x for p, x in zip(paths, by_paths, strict=True)}
            self._replay(path, inner, {**around, **moved}, added)
            return self.array(node.loss, inner)

        start = [zeros_like(self._read_by(path, p)) for p in paths]
        start_values = [zeros_like(self.array(v, environment)) for v in values]
        by_path, by_value = self.backend.differentiate(loss, start, start_values)
        if node.by_values is not None:
            found = {id(v): x for v, x in zip(values, by_value, strict=True)}
            remaining = (found[id(v)] for v in node.by_values)
            return tree_map(lambda leaf: next(remaining) if isinstance(leaf, Value) else leaf, node.result)
        return dict(zip(paths, by_path, strict=True))

    def _ordered(self, node: Gradients) -> list[Node]:
        inside = {id(n) for n in full_path(node)}
        trace = _graph_of(node, self.executor)
        return [n for n in trace if id(n) in inside]

    def _read_by(self, path: Sequence[Node], variable: str) -> Any:
        for node in path:
            if variable in self._read.get(id(node), {}):
                return self._read[id(node)][variable]
        return self.executor.store.cells[variable].value

    def _replay(
        self, path: Sequence[Node], environment: Environment, moved: dict[str, Any], added: dict[int, Any]
    ) -> None:
        """Evaluates a path again, with what is added to the variables that it reads and to values that it makes."""
        for node in path:
            if isinstance(node, Gradients):
                _place(node.result, self.gradient(node, environment, moved), environment)
            else:
                read = self.read_by(node).items()
                self.evaluate(node, environment, {p: x + moved[p] if p in moved else x for p, x in read})
            for value in node.values():
                if id(value) in added:
                    environment[id(value)] = environment[id(value)] + added[id(value)]


def _graph_of(node: Gradients, executor: EagerExecutor) -> list[Node]:
    trace = current_trace()
    assert trace is not None
    nodes = trace.graph.nodes
    inside = {id(n) for n in node.path}
    if inside <= {id(n) for n in nodes}:
        return nodes
    for outer in all_nodes(trace.graph):
        for body in outer.bodies.values():
            if inside <= {id(n) for n in body.nodes}:
                return body.nodes
    return list(node.path)


def _check_sizes(where: str, inputs: dict[str, Structure], arrays: Environment) -> None:
    """Refuses arguments whose batch or time sizes differ."""
    sizes: dict[str, dict[str, int]] = {}
    for parameter, structure in inputs.items():
        for path, value in flatten_tree(structure, parameter).items():
            if isinstance(value, Value):
                for axis, dim in enumerate(value.space.axes[: value.space.ranks]):
                    if isinstance(dim, Dim) and len(dim.symbols) == 1 and dim.factor == 1 and dim.offset == 0:
                        sizes.setdefault(dim.symbols[0], {})[path] = arrays[id(value)].shape[axis]
    for symbol, found in sizes.items():
        if len(set(found.values())) > 1:
            disagree(where, symbol, found)


def _place(structure: Structure, arrays: Any, environment: Environment) -> None:
    def place(value: Any, array: Any) -> None:
        if isinstance(value, Value):
            environment[id(value)] = array

    tree_map(place, structure, arrays)


def _map_arrays(fn: Callable[[Any], Any], structure: Any) -> Any:
    return tree_map(lambda leaf: leaf if isinstance(leaf, str) else fn(leaf), structure)

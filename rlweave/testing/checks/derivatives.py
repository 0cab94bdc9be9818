"""A call of an API method on a backend that differentiates, kept so that any part of it can be differentiated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rlweave.extensions.eager import EagerExecutor, EagerTrace, watched
from rlweave.graph.component import api_methods
from rlweave.graph.current import tracing
from rlweave.graph.differentiation import differentiated_path
from rlweave.graph.executor import static_key
from rlweave.graph.ir import Gradients, Graph, Node, Transfer, Value

#: Results below are those of masked actions.
_MASKED = -1e6


class Tape:
    """The arrays of a call, by place in the built graph, which is the same in every call.

    Args:
        executor: Eager, on a backend that differentiates.
        method: The API method.
        arguments: Its arguments by name, static ones among them.
        state: What the executor holds before.
    """

    def __init__(
        self, executor: EagerExecutor, method: str, arguments: Mapping[str, Any], state: Mapping[str, np.ndarray]
    ) -> None:
        executor.load_state_dict(state)
        declared = api_methods(type(executor.root))[method]
        given = declared.bind(executor.root, (), dict(arguments))
        self.executor = executor
        self.graph: Graph = executor.graphs[method, static_key(given[name] for name in declared.static)]
        trace = EagerTrace(executor, self.graph)
        self.arrays, self.interpreter = trace.arrays, trace.interpreter
        with executor._guard, tracing(trace), executor.backend.eager_scope(), watched(executor, self._watch):
            executor.session.activate()
            for parameter in self.graph.parameters:
                structure = self.graph.inputs[parameter]
                trace.give(structure, executor.linker.input_check(method, parameter, structure)(given[parameter]))
            for node in self.graph.nodes:
                if isinstance(node, Transfer):  # graph functions take what they are given to where they run
                    arrays = [self.arrays[id(value)] for value in node.inputs()]
                    self.arrays.update(zip(map(id, node.values()), arrays, strict=True))
                else:
                    self.interpreter.run_node(node, self.arrays)

    def _watch(self, node: Node, arrays: list[Any]) -> Any:
        self.arrays.update(zip(map(id, node.inputs()), arrays, strict=True))
        return lambda results: self.arrays.update(zip(map(id, node.values()), results, strict=True))

    def losses(self) -> list[Loss]:
        """What the method differentiates itself, in loops too; derivatives of derivatives are left out."""
        found = []
        for graph in [self.graph, *_bodies(self.graph)]:
            for node in graph.nodes:
                if not isinstance(node, Gradients) or id(node.loss) not in self.arrays:
                    continue
                if not any(isinstance(inner, Gradients) for inner in node.path):
                    found.append(Loss(self, graph.nodes, [node.loss], node.paths, node.by_values or (), node.label))
        return found


def _bodies(graph: Graph) -> list[Graph]:
    found = [body for node in graph.nodes for body in node.bodies.values()]
    return found + [inner for body in found for inner in _bodies(body)]


class Loss:
    """A result of a tape that is differentiated.

    Args:
        tape: What ran.
        nodes: Those of the graph (or body of a loop) that computes it.
        results: The loss; several, and arrays: a fixed projection of them.
        paths: Variables that it is differentiated by.
        values: Values that it is differentiated by.
        label: What it is called.
    """

    def __init__(
        self,
        tape: Tape,
        nodes: Sequence[Node],
        results: Sequence[Value],
        paths: Sequence[str],
        values: Sequence[Value],
        label: str,
    ) -> None:
        self.tape, self.nodes, self.results, self.label = tape, nodes, tuple(results), label
        self.paths, self.values = tuple(paths), tuple({id(value): value for value in values}.values())
        gradient = Gradients(label=label, args=(list(results),), paths=self.paths, by_values=self.values)
        path, _, self.spread = differentiated_path(nodes, gradient)
        self.path = path

    def upstream(self) -> list[Node]:
        """All nodes that the loss depends on, in order, whether gradients flow through them or not."""
        needed = {id(value) for value in self.results}
        found = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(map(id, node.values())):
                found.append(node)
                needed.update(map(id, node.inputs()))
        return found[::-1]

    def gradient(
        self, cut: Collection[Value] = (), through: Collection[Node] | None = None
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """The gradients by all variables (by path) and values (in order).

        Args:
            cut: Values that are constants to it.
            through: Readings of variables by these nodes count, and no others; None: all.
        """
        tape, backend = self.tape, self.tape.executor.backend
        constants = {id(value): tape.arrays[id(value)] for value in cut}
        counted = None if through is None else {id(node) for node in through}
        paths = [path for path in self.paths if self._read(path) is not None]

        def loss(by_paths: Any, by_values: Any) -> Any:
            added = {id(v): x for v, x in zip(self.values, by_values, strict=True)}
            return self._evaluated(dict(zip(paths, by_paths, strict=True)), added, constants, counted)

        zeros_like = backend.ops.zeros_like
        with tape.executor._guard, backend.eager_scope():
            tape.executor.session.activate()
            by_path, by_value = backend.differentiate(
                loss,
                [zeros_like(self._read(path)) for path in paths],
                [zeros_like(tape.arrays[id(value)]) for value in self.values],
            )
        found = {path: np.asarray(backend.to_numpy(x)) for path, x in zip(paths, by_path, strict=True)}
        return found, [np.asarray(backend.to_numpy(x)) for x in by_value]

    def mixed(self, one: Value, other: Value) -> np.ndarray:
        """The derivative by one value of the derivative by another one: how the one moves the gradient of the other."""
        tape, backend = self.tape, self.tape.executor.backend
        ops = backend.ops

        def slope(by_one: Any) -> Any:
            def loss(by_other: Any) -> Any:
                return self._evaluated({}, {id(one): by_one, id(other): by_other})

            (gradient,) = backend.differentiate(loss, ops.zeros_like(tape.arrays[id(other)]))
            return ops.sum(gradient)

        with tape.executor._guard, backend.eager_scope():
            tape.executor.session.activate()
            (found,) = backend.differentiate(slope, ops.zeros_like(tape.arrays[id(one)]))
        return np.asarray(backend.to_numpy(found))

    def _evaluated(
        self,
        moved: Mapping[str, Any],
        added: Mapping[int, Any],
        constants: Mapping[int, Any] = MappingProxyType({}),
        counted: Collection[int] | None = None,
    ) -> Any:
        """The loss, with something added to variables and values.

        Args:
            moved: What is added to variables, by path.
            added: What is added to values, by identity.
            constants: Values that stay what they are, by identity.
            counted: Nodes, by identity, for which variables are moved; None: all.
        """
        tape, inner = self.tape, dict(self.tape.arrays)
        inner.update({i: inner[i] + x for i, x in added.items()})
        inner.update(constants)
        for node in self.path:
            read = tape.interpreter.read_by(node)
            if counted is None or id(node) in counted:
                read = {path: x + moved[path] if path in moved else x for path, x in read.items()}
            tape.interpreter.evaluate(node, inner, read)
            for value in node.values():
                if id(value) in added:
                    inner[id(value)] = inner[id(value)] + added[id(value)]
            inner.update({i: x for i, x in constants.items() if i in inner})
        return self._scalar(inner)

    def _read(self, path: str) -> Any:
        for node in self.path:
            if path in self.tape.interpreter.read_by(node):
                return self.tape.interpreter.read_by(node)[path]
        return None

    def _scalar(self, environment: Mapping[int, Any]) -> Any:
        ops, total = self.tape.executor.backend.ops, None
        for value in self.results:
            x = environment[id(value)]
            if value.space.axes != () or len(self.results) > 1:
                angles = np.cos(np.arange(int(np.prod(x.shape)), dtype=np.float32) * 1.7 + 0.4).reshape(tuple(x.shape))
                x = ops.where(x > _MASKED, x, 0.0) * self.tape.executor.backend.from_numpy(angles)
            part = ops.sum(x)
            total = part if total is None else total + part
        return total

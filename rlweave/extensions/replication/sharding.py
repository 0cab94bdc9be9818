"""Replicas in one program over several devices (JAX): the rows of a batch are split, and the compiler does the rest.

Variables are whole on each device. Results do not depend on where rows are, so nothing is refused: means and
normalizations are those of the whole batch, and random numbers are drawn once for all of it.
"""

from __future__ import annotations

from typing import Any

from rlweave.backends import Backend
from rlweave.backends.base import TOGETHER
from rlweave.errors import BuildError
from rlweave.extensions.replication.splitting import batch_axis, batch_size, check_rows
from rlweave.graph.ir import Call, Gradients, Graph, Node, Value, all_nodes, gradients_of
from rlweave.graph.passes.partition import replace_inputs
from rlweave.tree import leaves_of


def shard(graph: Graph, backend: Backend, place: str) -> None:
    """Splits the batch that a graph learns from, and what enters each forward pass, in place.

    Args:
        graph: A traced graph without dead nodes.
        backend: Where it runs.
        place: The devices, as one place.

    Raises:
        BuildError: The batch has another number of rows than a multiple of the devices.
    """
    if any(isinstance(node, Gradients) for node in all_nodes(graph)):
        _Sharding(backend, place).graph(graph)


class _Sharding:
    """One graph."""

    def __init__(self, backend: Backend, place: str) -> None:
        self.backend, self.place, self.count = backend, place, place.count(TOGETHER) + 1
        #: Nodes that split rows.
        self.made: set[int] = set()

    def graph(self, graph: Graph) -> None:
        """Splits inputs where they come in: one that no forward pass takes as it is may stay whole."""
        users = {id(value): node.label for node in _forward(graph) for value in node.inputs()}
        inputs = [value for value in leaves_of(graph.inputs, Value) if _axis(value) is not None]
        split = {id(value): self._rows_of(value, users.get(id(value), "")) for value in inputs}
        for node in graph.nodes:
            replace_inputs(node, {key: node.result for key, node in split.items()})
        graph.nodes = [*split.values(), *graph.nodes]
        self._block(graph)

    def _block(self, graph: Graph) -> None:
        """Splits what forward passes take from elsewhere, in a graph and its bodies."""
        for node in graph.nodes:
            for body in node.bodies.values():
                self._block(body)
        forward = {id(node) for node in _forward(graph)}
        inside = {id(value) for node in graph.nodes if id(node) in forward for value in node.values()}
        split: dict[int, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if id(node) in forward:
                for value in node.inputs():
                    known = id(value) in inside or id(value) in split or id(value.node) in self.made
                    if not known and _axis(value) is not None:
                        nodes.append(self._rows_of(value, node.label))
                        split[id(value)] = nodes[-1].result
                replace_inputs(node, split)
            nodes.append(node)
        graph.nodes = nodes

    def _rows_of(self, value: Value, user: str) -> Node:
        """A node that has each device hold its part of the rows of a value.

        Args:
            value: What has rows, in one axis or folded with others into one.
            user: What needs them split; "": nothing, so that what cannot be split evenly is whole on each device.
        """
        axis, count, split, place = _axis(value), self.count, self.backend.split_rows, self.place
        assert axis is not None
        if user and (size := batch_size(value.space)) is not None:
            check_rows(size, count, user, BuildError)

        def rows(x: Any) -> Any:
            if user:
                check_rows(x.shape[axis], count, user)
            return x if x.shape[axis] % count else split(x, axis, place)

        of = value.name if value.node is None else value.node.label
        node = Call(label=f"{of}.rows", function=rows, args=(value,), differentiable=False, plain=True)
        node.result = Value(value.space, node, (), value.name)
        self.made.add(id(node))
        return node


def _axis(value: Value) -> int | None:
    """The axis of its rows, if there is one."""
    axis = batch_axis(value.space)
    return None if axis is None or axis < 0 else axis


def _forward(graph: Graph) -> list[Node]:
    """The nodes of forward passes."""
    path = {id(node) for gradient in gradients_of(graph.nodes) for node in gradient.path}
    return [node for node in graph.nodes if id(node) in path]

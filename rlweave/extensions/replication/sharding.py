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
        inputs = [value for value in leaves_of(graph.inputs, Value) if _has_rows(value)]
        split = {id(value): _rows_of(value, "", backend, place) for value in inputs}
        for node in graph.nodes:
            replace_inputs(node, {key: node.result for key, node in split.items()})
        graph.nodes = [*split.values(), *graph.nodes]
        _split_forward_passes(graph, backend, place)


def _split_forward_passes(graph: Graph, backend: Backend, place: str) -> None:
    for node in graph.nodes:
        for body in node.bodies.values():
            _split_forward_passes(body, backend, place)
    path = {id(node) for gradient in gradients_of(graph.nodes) for node in gradient.path}
    inside = {id(value) for node in graph.nodes if id(node) in path for value in node.values()}
    split: dict[int, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if id(node) in path:
            for value in node.inputs():
                if _has_rows(value) and id(value) not in inside and id(value) not in split:
                    nodes.append(_rows_of(value, node.label, backend, place))
                    split[id(value)] = nodes[-1].result
            replace_inputs(node, split)
        nodes.append(node)
    graph.nodes = nodes


def _has_rows(value: Value) -> bool:
    axis = batch_axis(value.space)
    return axis is not None and axis >= 0


def _rows_of(value: Value, user: str, backend: Backend, place: str) -> Node:
    """A node that has each device hold its part of the rows of a value.

    Args:
        value: What has rows, in one axis or folded with others into one.
        user: What needs them split; "": nothing, so that what cannot be split evenly is whole on each device.
        backend: Where they are.
        place: The devices.
    """
    axis, count, split = batch_axis(value.space), place.count(TOGETHER) + 1, backend.split_rows
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
    return node

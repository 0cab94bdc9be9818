"""Copies of nodes, with other values in place of those that they use and of variables that they read."""

from __future__ import annotations

import dataclasses
from typing import Any

from rlweave.graph.ir import Call, Graph, Node, Value
from rlweave.tree import tree_map


def copy_node(
    node: Node, values: dict[int, Value], variables: dict[str, Value], device: str, replica: int, inner: bool = False
) -> Node:
    """A node once more, on a device, with other values for those that it uses, and values in place of variables.

    Args:
        node: The node.
        values: By id of a value the one to use instead; those that the copy makes are added.
        variables: By path the value to read.
        device: Where it runs.
        replica: Its number, which goes into its name.
        inner: Whether it stands in a body.
    """

    def chosen(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    path, _, function = node.label.rpartition(".")
    function = function.lstrip("_")
    name = path.rpartition("/")[2] if function in ("call", "") else function
    fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    bodies: dict[str, Any] = {
        name: _copy_body(body, values, variables, device, replica)
        for name, body in fields.items()
        if isinstance(body, Graph)
    }
    copy = dataclasses.replace(
        node,
        label=node.label if inner else f"{path}.{name}_{replica}",
        args=tree_map(chosen, node.args),
        reads=(),
        writes=(),
        host=False,
        device=device,
        replica=replica,
        alias_variables=(),
        result=None,
        **bodies,
    )
    if isinstance(copy, Call):
        copy.kwargs = tree_map(chosen, copy.kwargs)
        copy.substitution = {key: chosen(value) for key, value in copy.substitution.items()}
        copy.substitution.update({key: variables[key] for key in node.reads})
        copy.aliased_writes = ()

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        values[id(leaf)] = value = Value(leaf.space, copy, leaf.key, leaf.name)
        return value

    copy.result = tree_map(made, node.result)
    return copy


def _copy_body(body: Graph, values: dict[int, Value], variables: dict[str, Value], device: str, replica: int) -> Graph:
    def entering(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        values[id(leaf)] = value = Value(leaf.space, None, leaf.key, leaf.name)
        return value

    copy = Graph(body.name, body.parameters, tree_map(entering, body.inputs), static=body.static)
    copy.nodes = [copy_node(node, values, variables, device, replica, inner=True) for node in body.nodes]
    copy.outputs = tree_map(lambda x: values.get(id(x), x) if isinstance(x, Value) else x, body.outputs)
    return copy

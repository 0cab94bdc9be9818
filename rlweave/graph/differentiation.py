"""Which nodes a gradient goes through, and what may not lie on that path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.ir import RANDOM_PATHS, Graph, Node, Value, leaves_of
from rlweave.graph.trace import Trace


def check_path(trace: Trace, gradient: Node) -> None:
    """Finds the differentiated path of a gradient node and refuses what cannot be differentiated.

    The nodes of the path go to `gradient.extra["path"]`.

    Raises:
        BuildError: A write that is read again, a host node or a while loop on the path; a path that starts
            outside of the body that holds the gradient.
    """
    nodes = trace.graph.nodes
    path, writers = differentiated_path(nodes, gradient)
    gradient.extra["path"] = tuple(path)
    for node in path:
        _refuse_undifferentiable(node, gradient)
    for node, variable in writers:
        _refuse_write(node, variable, gradient)
    outer = trace.outer
    while outer is not None:
        outside, _ = _active(outer.graph.nodes, gradient)
        free = {id(value) for value in trace.graph.free_values()} | {id(gradient.extra["loss"])}
        for node in outer.graph.nodes:
            used = id(node) in outside and any(id(value) in free for value in node.values())
            if used and _reaches(trace.graph, node, gradient):
                raise BuildError(
                    "the differentiated path starts outside of the body that takes the gradient",
                    where=gradient.label,
                    received=f"{node.label} reads what is differentiated, outside",
                    fix="compute the loss in the same body as its gradient",
                )
        outer = outer.outer


def differentiated_path(nodes: Sequence[Node], gradient: Node) -> tuple[list[Node], list[tuple[Node, str]]]:
    """Nodes between a read of the variables and the loss, and writes on the way that are read again.

    Returns:
        The path in program order; (node, variable path) of each write that the loss depends on.
    """
    active, written = _active(nodes, gradient)
    needed_values = {id(value) for value in leaves_of(gradient.args[0], Value)}
    needed_state: set[str] = set()
    path: list[Node] = []
    writers: list[tuple[Node, str]] = []
    for node in reversed(nodes):
        hit = any(id(value) in needed_values for value in node.values())
        state_hit = [p for p in node.writes if p in needed_state and (id(node), p) in written]
        if not hit and not state_hit:
            continue
        if id(node) in active:
            if hit:
                path.append(node)
            writers += [(node, p) for p in state_hit]
            needed_values.update(id(value) for value in node.inputs())
            needed_state.update(p for p in _state_read(node) if p not in RANDOM_PATHS)
    return path[::-1], writers


def _active(nodes: Sequence[Node], gradient: Node) -> tuple[set[int], set[tuple[int, str]]]:
    """Nodes that depend differentiably on what is differentiated by; and their writes."""
    paths = set(gradient.extra.get("paths", ()))
    values = {id(value) for value in gradient.extra.get("values", ())}
    active: set[int] = set()
    written: set[tuple[int, str]] = set()
    tainted: set[str] = set()
    for node in nodes:
        if not node.differentiable and node.kind != "while":
            tainted.difference_update(node.writes)
            continue
        reads = _state_read(node)
        hit = any(id(value) in values for value in node.inputs()) or any(p in paths for p in reads)
        through_state = any(p in tainted for p in reads)
        if hit or through_state:
            active.add(id(node))
            values.update(id(value) for value in node.values() if value.space.dtype.startswith("float"))
            for p in _differentiable_writes(node):
                tainted.add(p)
                written.add((id(node), p))
    return active, written


def _state_read(node: Node) -> tuple[str, ...]:
    """State that a node reads itself; a gradient pulls back what its forward nodes have read."""
    return () if node.kind == "gradient" else node.reads


def _differentiable_writes(node: Node) -> set[str]:
    if not node.bodies:
        whole = {*RANDOM_PATHS, *node.extra.get("integer_writes", ())}  # integers carry no gradient
        return {p for p in node.writes if p not in whole} if node.differentiable else set()
    return {p for body in node.bodies.values() for inner in body.nodes for p in _differentiable_writes(inner)}


def _reaches(graph: Graph, outer_node: Node, gradient: Node) -> bool:
    """Whether values of a node outside reach the loss inside through differentiable nodes."""
    values = {id(value) for value in outer_node.values()}
    for node in graph.nodes:
        if node.differentiable and any(id(value) in values for value in node.inputs()):
            values.update(id(value) for value in node.values())
    return id(gradient.extra["loss"]) in values


def _refuse_undifferentiable(node: Node, gradient: Node) -> None:
    if node.kind == "while":
        raise BuildError(
            "a gradient goes through graph.while_",
            where=gradient.label,
            received=f"{node.label} lies between the variables and the loss",
            fix="use graph.scan with a fixed number of steps, which can be differentiated",
        )
    if node.host:
        raise BuildError(
            "a gradient goes through a host node",
            where=gradient.label,
            received=f"{node.label} lies between the variables and the loss",
            fix="compute it in a device graph function, or declare the host function differentiable=False",
        )
    for body in node.bodies.values():
        for inner in body.nodes:
            _refuse_undifferentiable(inner, gradient)
        reads: set[str] = {p for inner in body.nodes if inner.differentiable for p in inner.reads}
        for inner in body.nodes:
            for p in _differentiable_writes(inner) & reads if node.kind == "scan" else ():
                _refuse_write(inner, p, gradient)


def _refuse_write(node: Node, variable: str, gradient: Node) -> None:
    raise BuildError(
        "a variable is written inside a differentiated path",
        where=gradient.label,
        received=f"{node.label} writes {variable!r}, and the loss reads it afterwards",
        fix="hand the new value on as a value: graph.substitute(component, values) reads values in place of variables "
        "(or declare the graph function differentiable=False where the gradient is meant to stop)",
    )


def full_path(gradient: Node) -> list[Node]:
    """The path of a gradient with the paths of the gradients nested in it."""
    found: dict[int, Node] = {}
    stack: list[Any] = list(gradient.extra["path"])
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            if node.kind == "gradient":
                stack.extend(node.extra["path"])
    return list(found.values())

"""Drops nodes without writes and without users; nodes with writes stay."""

from __future__ import annotations

from rlweave.graph.ir import Graph


def drop_dead_nodes(graph: Graph) -> Graph:
    """Drops dead nodes of a graph and of its bodies, in place."""
    used = {id(value) for value in graph.output_values()}
    kept = []
    for node in reversed(graph.nodes):
        for body in node.bodies.values():
            drop_dead_nodes(body)
        if node.writes or not used.isdisjoint(map(id, node.values())):
            kept.append(node)
            used.update(map(id, node.inputs()))
    graph.nodes = kept[::-1]
    return graph

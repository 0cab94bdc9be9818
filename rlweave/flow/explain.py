"""A plan as text and as a Mermaid drawing."""

from __future__ import annotations

from collections.abc import Sequence

from rlweave.flow.item_types import type_name
from rlweave.flow.node import Node, Port
from rlweave.flow.plan_graph import PlanGraph


def explain(graph: PlanGraph, engine: str) -> str:
    """Operators with item types and placement, then edges with capacity and policy, as two aligned tables."""
    operators = [("operator", "takes", "gives", "placement", "settings")]
    for node in graph.nodes:
        gives = " , ".join(type_name(port.item_type) for port in node.outputs) or "-"
        takes = type_name(node.takes) if node.inputs else "-"
        place = node.placement()
        operators.append((node.name, takes, gives, place if place == "driver" else f"{place} ({engine})", node.note()))
    edges = [("from", "to", "items", "capacity", "when full")]
    for node in graph.nodes:
        edges += [
            (_port_name(port), node.name, type_name(port.item_type), str(_capacity(port, node)), port.node.policy)
            for port in node.inputs
        ]
    return f"Operators\n{_table(operators)}\n\nEdges\n{_table(edges)}\n"


def draw(graph: PlanGraph) -> str:
    """The plan as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    numbers = {node: f"n{number}" for number, node in enumerate(graph.nodes)}
    for node, identity in numbers.items():
        left, right = ("[(", ")]") if not node.inputs else ("[", "]")
        note = f"<br/><small>{_escaped(node.note())}</small>" if node.note() else ""
        lines.append(f'    {identity}{left}"{_escaped(node.name)}{note}"{right}')
    for node, identity in numbers.items():
        for port in node.inputs:
            arrow = "==>" if port.parallel else "-->"
            label = f"{type_name(port.item_type)}, {_capacity(port, node)} {port.node.policy}"
            lines.append(f'    {numbers[port.node]} {arrow}|"{_escaped(label)}"| {identity}')
    return "\n".join(lines) + "\n"


def _capacity(port: Port, consumer: Node) -> int:
    """Items on the edge from a port to its consumer: a gather decides how many it asks for ahead."""
    return max(port.node.capacity, consumer.in_flight)


def _port_name(port: Port) -> str:
    node = port.node
    return f"{node.name}[{port.index}]" if len(node.outputs) > 1 else node.name


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join("  " + line for line in lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("[", "&#91;").replace("]", "&#93;")

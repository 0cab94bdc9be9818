"""A plan as text, and what its operators send each other beside the items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rlweave.flow.item_types import type_name
from rlweave.flow.operator import Operator, Port
from rlweave.flow.plan_graph import PlanGraph
from rlweave.flow.resources import described, total
from rlweave.flow.workers import WorkerGroup


class Message(NamedTuple):
    """A way that something goes from an operator to another one, beside the streams.

    Attributes:
        sender: The operator that sends it.
        receiver: The operator that stands for the receiver; None for an object that has no operator in the plan.
        to: Name of the receiver.
        what: What is sent, such as ``"weights"``.
        capacity: How many may be under way to each receiver, in words.
        when_full: What happens when there are more.
        stored: Whether these are items that a memory keeps and gives out again.
    """

    sender: Operator
    receiver: Operator | None
    to: str
    what: str
    capacity: str
    when_full: str
    stored: bool


def messages_of(graph: PlanGraph) -> Iterator[Message]:
    """All messages of a plan, in the order of their senders."""
    for operator in graph.nodes:
        if operator.fills is not None:
            for receiver in _standing_for(graph, operator.fills):
                capacity = str(getattr(operator.fills, "capacity", None) or "-")
                yield _message(operator, receiver, operator.fills, ("items", capacity, "the memory's own"), True)
        for target, what, capacity, when_full in operator.sends():
            for receiver in _standing_for(graph, target):
                yield _message(operator, receiver, target, (what, capacity, when_full), False)


def _message(
    sender: Operator, receiver: Operator | None, target: Any, described: tuple[str, str, str], stored: bool
) -> Message:
    to = type(target).__name__ if receiver is None else receiver.name
    return Message(sender, receiver, to, *described, stored)


def _standing_for(graph: PlanGraph, target: Any) -> list[Operator] | list[None]:
    """The operators at which a stream of these workers, or of this memory, begins; one None if there are none."""
    if isinstance(target, WorkerGroup):
        found = [node for node in graph.nodes if node.group is not None and node.group.key == target.key]
    else:
        found = [node for node in graph.nodes if node.draws_from is target]
    return found or [None]


def explain(graph: PlanGraph, engine: str) -> str:
    """Operators with item types and placement, edges with capacity and what happens when full, messages, and resources.

    Args:
        graph: The operators.
        engine: Name of the engine that they run on.
    """
    operators = [("operator", "takes", "gives", "placement", "settings")]
    for node in graph.nodes:
        gives = " , ".join(type_name(port.item_type) for port in node.outputs) or "-"
        takes = type_name(node.takes) if node.inputs else "-"
        place = node.placement()
        operators.append(
            (node.name, takes, gives, place if place == "driver" else f"{place} ({engine})", settings_of(node))
        )
    edges = [("from", "to", "items", "capacity", "when full")]
    for node in graph.nodes:
        edges += [
            (_port_name(port), node.name, type_name(port.item_type), str(edge_capacity(port, node)), port.when_full)
            for port in node.inputs
        ]
    parts = [f"Operators\n{_table(operators)}", f"Edges\n{_table(edges)}"]
    messages = [("from", "to", "what", "capacity", "when full")]
    messages += [(m.sender.name, m.to, m.what, m.capacity, m.when_full) for m in messages_of(graph)]
    if len(messages) > 1:
        parts.append(f"Messages\n{_table(messages)}")
    held = [(name, f"{number} x ({described(total([(1, one)]))})") for name, number, one in graph.needs_by_operator()]
    held.append(("in all", described(total(graph.needs()))))
    parts.append(f"Resources on a cluster\n{_table([('operator', 'actors'), *held])}")
    return "\n\n".join(parts) + "\n"


def settings_of(operator: Operator) -> str:
    """The settings of an operator, and what ``on_error`` said."""
    rule = "" if operator.failure_rule is None or operator.beside is not None else operator.failure_rule.note()
    return ", ".join(filter(None, [operator.note(), rule]))


def edge_capacity(port: Port, consumer: Operator) -> int:
    """Items on the edge from a port to its consumer: a gather decides how many it asks for ahead."""
    return max(port.capacity, consumer.in_flight)


def _port_name(port: Port) -> str:
    node = port.node
    return f"{node.name}[{port.index}]" if len(node.outputs) > 1 else node.name


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join("  " + line for line in lines)

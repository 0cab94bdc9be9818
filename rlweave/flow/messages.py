"""What operators of a plan send each other beside the items: weights, priorities, messages, what a memory keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rlweave.flow.operator import Operator
from rlweave.flow.plan_graph import PlanGraph
from rlweave.flow.workers import WorkerGroup


class Message(NamedTuple):
    """A way that something goes from an operator to another one, beside the streams.

    Attributes:
        sender: The operator that sends it.
        receiver: The operator that stands for the receiver; None for an object that has no operator in the plan.
        to: Name of the receiver.
        what: What is sent, such as ``"weights"``.
        capacity: How many may be under way to each receiver, in words.
        policy: What happens when there are more.
        stored: Whether these are items that a memory keeps and gives out again.
    """

    sender: Operator
    receiver: Operator | None
    to: str
    what: str
    capacity: str
    policy: str
    stored: bool


def messages_of(graph: PlanGraph) -> Iterator[Message]:
    """All messages of a plan, in the order of their senders."""
    for operator in graph.nodes:
        if operator.fills is not None:
            for receiver in _standing_for(graph, operator.fills):
                capacity = str(getattr(operator.fills, "capacity", None) or "-")
                yield _message(operator, receiver, operator.fills, ("items", capacity, "the memory's own"), True)
        for target, what, capacity, policy in operator.sends():
            for receiver in _standing_for(graph, target):
                yield _message(operator, receiver, target, (what, capacity, policy), False)


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

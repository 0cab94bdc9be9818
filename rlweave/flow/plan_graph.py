"""The graph of a plan: all nodes that belong to it and their final names, and its description as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.branching import Queue
from rlweave.flow.gather_modes import GatherAsync
from rlweave.flow.item_types import type_name
from rlweave.flow.learner import LearnerActor
from rlweave.flow.operator import Operator, Port
from rlweave.flow.plan_errors import check_state
from rlweave.flow.protocols import Learner
from rlweave.flow.resources import Resources, alike, described, total
from rlweave.flow.sources import RolloutSource
from rlweave.flow.workers import WorkerGroup


class PlanGraph:
    """All nodes that are connected with a sink, in topological order, checked.

    Args:
        sink: The end of the plan.

    Raises:
        PlanError: If an output has no consumer, two operators have one name, or the check of a node fails.
    """

    def __init__(self, sink: Operator) -> None:
        self.nodes = sorted(_connected(sink), key=lambda node: node.order)
        self._name_nodes()
        self._check_consumers(sink)
        self._ancestors: dict[Operator, set[Operator]] = {}
        for node in self.nodes:
            above = {port.node for port in node.inputs}
            self._ancestors[node] = above.union(*(self._ancestors[parent] for parent in above))
        for node in self.nodes:
            if node.sends_to is not None:
                self.check_group(node.sends_to, node.name)
            check_state(node.name, node, type(node).state)
            node.check(self)

    def _name_nodes(self) -> None:
        taken: dict[str, Operator] = {}
        for node in sorted(self.nodes, key=lambda node: (not node.named_by_user, node.order)):
            name, number = node.base_name, 1
            if node.named_by_user and name in taken:
                raise PlanError(
                    f"two operators are named {name!r}",
                    where=f"operators {taken[name].name!r} and {name!r}",
                    received=repr(name),
                    fix="give them different names",
                )
            while name in taken:
                number += 1
                name = f"{node.base_name}-{number}"
            taken[name] = node
            node.name = name

    def _check_consumers(self, sink: Operator) -> None:
        for node in self.nodes:
            for port in node.outputs:
                if port.consumer is None:
                    raise PlanError(
                        f"the items of {node.name!r} have no consumer",
                        where=f"operators {node.name!r} and {sink.name!r}",
                        received=f"{port.describe()}, without a consumer",
                        fix=f"make it a branch of a Union that ends in {sink.name!r}, or leave it out",
                    )

    def source_of(self, group: WorkerGroup) -> RolloutSource:
        """The source whose actors are the workers of a group that passed `check_group`."""
        return next(node for node in self.nodes if isinstance(node, RolloutSource) and node.group.key == group.key)

    def trainer_of(self, learner: LearnerActor) -> str:
        """Name of the operator that trains a learner which lives in an actor."""
        return next((node.name for node in self.nodes if node.trains is learner), "learner")

    def trains(self, learner: Learner | LearnerActor) -> bool:
        """Whether an operator of the plan trains a learner."""
        return any(node.trains is learner for node in self.nodes)

    def check_group(self, group: WorkerGroup, operator: str) -> None:
        """Checks that the workers given to an operator are those of a ParallelRollouts of this plan.

        Raises:
            PlanError: If not: weights would go to workers that make no items for this plan.
        """
        sources = [node for node in self.nodes if isinstance(node, RolloutSource)]
        if all(source.group.key != group.key for source in sources):
            shown = ", ".join(f"{len(source.group)} workers in {source.name!r}" for source in sources) or "no rollouts"
            raise PlanError(
                f"the workers of {operator!r} are not those that this plan samples from",
                where=f"operator {operator!r}, argument 'workers'",
                received=f"{len(group)} workers, where the plan has {shown}",
                fix="give ParallelRollouts and every other operator the same list or WorkerGroup",
            )

    def groups(self) -> list[WorkerGroup]:
        """The groups of workers that the plan samples from."""
        return list({node.group.key: node.group for node in self.nodes if isinstance(node, RolloutSource)}.values())

    def needs(self) -> list[tuple[int, Resources]]:
        """The actors of the plan, and those of plans in it: how many, and what each of them holds."""
        return alike([(number, resources) for _, number, resources in self.needs_by_operator()])

    def needs_by_operator(self) -> list[tuple[str, int, Resources]]:
        """The actors of the plan, and those of plans in it: of which operator, how many, what each of them holds."""
        groups = {node.group.key: (node.name, node.group) for node in self.nodes if isinstance(node, RolloutSource)}
        learners = {
            id(node.trains): (node.name, node.trains) for node in self.nodes if isinstance(node.trains, LearnerActor)
        }
        own = [(name, len(group), group.resources) for name, group in groups.values()]
        own += [(name, 1, learner.resources) for name, learner in learners.values()]
        return own + [
            (f"plans in {name}", number, resources)
            for name, group in groups.values()
            for number, resources in alike(group.inner_needs())
        ]

    def has_only_one_source(self) -> bool:
        """Whether the plan has one stream of rollouts and nothing else that could move meanwhile."""
        alone = [node for node in self.nodes if not node.inputs]
        steady = not any(isinstance(node, Queue) or isinstance(node.trains, LearnerActor) for node in self.nodes)
        return len(alone) == 1 and isinstance(alone[0], RolloutSource) and steady

    def ancestors(self, node: Operator) -> set[Operator]:
        """All nodes whose items can reach ``node``."""
        return self._ancestors[node]

    def learners_behind(self, node: Operator) -> list[Learner | LearnerActor]:
        """The learners that train on items which have come through ``node``, each once."""
        below = [other.trains for other in self.nodes if node in self._ancestors[other]]
        found = [learner for learner in below if learner is not None]
        return list({id(learner): learner for learner in found}.values())

    def max_lags_above(self, node: Operator) -> list[tuple[WorkerGroup, int]]:
        """Worker groups whose items reach ``node`` with bounded lag, and that bound."""
        gathers = [above for above in self._ancestors[node] if isinstance(above, GatherAsync)]
        return [(gather.source.group, gather.max_lag) for gather in gathers if gather.max_lag is not None]

    def stores_into(self, memory: Any) -> list[Operator]:
        """All operators that store into a memory."""
        return [node for node in self.nodes if node.fills is memory]


def _connected(sink: Operator) -> set[Operator]:
    found: set[Operator] = set()
    waiting = [sink]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        waiting += [port.node for port in node.inputs]
        waiting += [port.consumer for port in node.outputs if port.consumer is not None]
    return found


class Message(NamedTuple):
    """A message from one operator to another, beside the streams.

    Attributes:
        sender: The operator that sends it.
        receiver: The operator that stands for the receiver; None for an object that has no operator in the plan.
        to: Name of the receiver.
        what: What is sent, such as ``"weights"``.
        capacity: How many may be under way to each receiver, as text.
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
    """The text of ``explain``: operators with item types and placement, edges with capacity, messages, and resources.

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
    parts = [f"Operators\n{table(operators)}", f"Edges\n{table(edges)}"]
    messages = [("from", "to", "what", "capacity", "when full")]
    messages += [(m.sender.name, m.to, m.what, m.capacity, m.when_full) for m in messages_of(graph)]
    if len(messages) > 1:
        parts.append(f"Messages\n{table(messages)}")
    held = [(name, f"{number} x ({described(total([(1, one)]))})") for name, number, one in graph.needs_by_operator()]
    held.append(("in all", described(total(graph.needs()))))
    parts.append(f"Resources on a cluster\n{table([('operator', 'actors'), *held])}")
    return "\n\n".join(parts) + "\n"


def settings_of(operator: Operator) -> str:
    """The settings of an operator, with those of ``on_error``."""
    rule = "" if operator.failure_rule is None or operator.beside is not None else operator.failure_rule.note()
    return ", ".join(filter(None, [operator.note(), rule]))


def edge_capacity(port: Port, consumer: Operator) -> int:
    """Items on the edge from a port to its consumer: a gather decides how many it asks for ahead."""
    return max(port.capacity, consumer.in_flight)


def _port_name(port: Port) -> str:
    node = port.node
    return f"{node.name}[{port.index}]" if len(node.outputs) > 1 else node.name


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts in columns; the first one is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join("  " + line for line in lines)

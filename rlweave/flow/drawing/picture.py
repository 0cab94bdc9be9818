"""What a picture of a plan shows, before anybody says how: boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rlweave.flow.explain import edge_capacity, settings_of
from rlweave.flow.item_types import type_name
from rlweave.flow.messages import messages_of
from rlweave.flow.operator import Operator, RunsAt
from rlweave.flow.plan_graph import PlanGraph

PLACES: dict[RunsAt, str] = {
    "sources": "at the sources",
    "driver": "in the driver",
    "learner": "in the learner's actor",
    "elsewhere": "in an object of the program",
}
"""What each colour means."""

Kind = Literal["stream", "parallel", "message", "stored"]
KINDS: dict[Kind, str] = {
    "parallel": "stream at its sources",
    "stream": "stream",
    "message": "weights, priorities, messages",
    "stored": "items that a memory keeps",
}
"""What each kind of arrow means."""


@dataclass
class OperatorBox:
    """An operator.

    Attributes:
        name: Its name in the plan.
        small: Lines of small print: where it runs, settings.
        place: Where it runs.
        begins: Whether a stream begins there.
    """

    name: str
    small: list[str]
    place: RunsAt
    begins: bool = False


@dataclass
class Arrow:
    """What goes from one operator to another.

    Attributes:
        source: Name of the one.
        target: Name of the other.
        labels: What it says, line by line.
        kind: What it is.
    """

    source: str
    target: str
    labels: list[str]
    kind: Kind


@dataclass
class PlanPicture:
    """A plan, as a picture shows it."""

    boxes: list[OperatorBox] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    @property
    def places(self) -> list[RunsAt]:
        """The places that occur, in the order of the legend."""
        return [place for place in PLACES if any(box.place == place for box in self.boxes)]

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of arrows that occur, in the order of the legend."""
        return [kind for kind in KINDS if any(arrow.kind == kind for arrow in self.arrows)]


def make_picture(graph: PlanGraph, seconds: float | None = None) -> PlanPicture:
    """The picture of a plan.

    Args:
        graph: Its operators.
        seconds: How long it has been running; then items, rates, fill and lag are shown. None if it was not started.
    """
    picture = PlanPicture()
    for node in graph.nodes:
        where = "" if node.placement() == "driver" else node.placement()
        done = "" if seconds is None else _progress(node, seconds)
        small = [text for text in (where, *_lines(settings_of(node)), *_lines(done)) if text]
        picture.boxes.append(OperatorBox(node.name, small, node.runs_at, not node.inputs))
        for port in node.inputs:
            labels = [*_lines(type_name(port.item_type), " | "), f"{edge_capacity(port, node)} {port.when_full}"]
            picture.arrows.append(Arrow(port.node.name, node.name, labels, "parallel" if port.parallel else "stream"))
    picture.arrows += _message_arrows(graph, picture)
    return picture


def _progress(operator: Operator, seconds: float) -> str:
    """What an operator has done in so many seconds; empty if that is nothing."""
    done = operator.timer.items
    rate = f" ({done / seconds:,.0f}/s)" if seconds > 0 else ""
    parts = [f"{done:,} items{rate}"] if done else []
    parts += [f"{name.replace('_', ' ')} {value:g}" for name, value in operator.measures().items()]
    return ", ".join(filter(None, [*parts, operator.progress()]))


def _message_arrows(graph: PlanGraph, picture: PlanPicture) -> Iterator[Arrow]:
    for message in messages_of(graph):
        if message.receiver is None and not any(box.name == message.to for box in picture.boxes):
            picture.boxes.append(OperatorBox(message.to, [], "elsewhere"))
        if message.sender.name != message.to:
            yield Arrow(message.sender.name, message.to, [message.what], "stored" if message.stored else "message")


def _lines(text: str, separator: str = ", ", width: int = 34) -> list[str]:
    """Breaks a list of settings into lines; a part of it is never cut.

    >>> _lines("round_robin, weights=[1, 1], output=0", width=20)
    ['round_robin,', 'weights=[1, 1],', 'output=0']
    """
    lines: list[str] = []
    for part in text.split(separator):
        joined = f"{lines[-1]}{separator}{part}" if lines else part
        if not lines or (len(joined) > width and lines[-1].count("[") == lines[-1].count("]")):
            if lines:
                lines[-1] += separator.rstrip()
            lines.append(part)
        else:
            lines[-1] = joined
    return [line for line in lines if line]

"""Pictures of plans: what they show, and how it looks as Mermaid text and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from rlweave.errors import PlanError, nearest
from rlweave.flow.item_types import type_name
from rlweave.flow.operator import Operator, RunsAt
from rlweave.flow.plan_graph import PlanGraph, edge_capacity, messages_of, settings_of
from rlweave.view.layout.boxes import Box, Ends, Link, sans_width
from rlweave.view.layout.elements import (
    GREY,
    INK,
    LegendEntry,
    arrow_head,
    label,
    legend,
    line,
    page,
    route,
    stroke,
    swatch,
    text_element,
)
from rlweave.view.layout.layered import Edge, Item, arrange

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
    """A plan, as a picture shows it.

    Attributes:
        boxes: Its operators.
        arrows: What goes from one to another.
        explains_places: Whether the legend says what the colours mean.
    """

    boxes: list[OperatorBox] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    explains_places: bool = True

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


#: (fill, border) of each place, as in the SVG pictures.
COLOURS: dict[RunsAt, tuple[str, str]] = {
    "sources": ("#dbeafe", "#7aa7e0"),
    "driver": ("#f1f5f9", "#94a3b8"),
    "learner": ("#dcfce7", "#6fbf8b"),
    "elsewhere": ("#ffffff", "#94a3b8"),
}
_ARROWS = {
    "stream": ("--", "-->"),
    "parallel": ("==", "==>"),
    "message": ("-.", ".->"),
    "stored": ("-.", ".->"),
}


def to_mermaid(picture: PlanPicture) -> str:
    """Writes a picture as a Mermaid flowchart, from left to right."""
    lines = ["flowchart LR"]
    numbers = {box.name: f"n{number}" for number, box in enumerate(picture.boxes)}
    for box in picture.boxes:
        left, right = ("[(", ")]") if box.begins else ("[", "]")
        small = "".join(f"<br/><small>{_escaped(text)}</small>" for text in box.small)
        lines.append(f'  {numbers[box.name]}{left}"{_escaped(box.name)}{small}"{right}')
    for arrow in picture.arrows:
        begin, end = _ARROWS[arrow.kind]
        label = "<br/>".join(map(_escaped, arrow.labels))
        lines.append(f'  {numbers[arrow.source]} {begin} "{label}" {end} {numbers[arrow.target]}')
    for place in picture.places:
        fill, border = COLOURS[place]
        members = ",".join(numbers[box.name] for box in picture.boxes if box.place == place)
        lines += [f"  classDef {place} fill:{fill},stroke:{border},color:#1f2937", f"  class {members} {place}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;").replace("[", "&#91;").replace("]", "&#93;")


MARGIN, LEAST_WIDTH = 16.0, 420.0
NAME_SIZE, SMALL_SIZE, INDENT = 12.0, 9.5, 12.0
DASHES: dict[Kind, str] = {"stream": "", "parallel": "", "message": "7 3", "stored": "2 3"}
STROKES: dict[Kind, str] = {"stream": GREY, "parallel": "#2563eb", "message": "#c2410c", "stored": "#a16207"}


def to_svg(picture: PlanPicture) -> str:
    """Draws a picture as SVG text, from top to bottom."""
    items = {box.name: Item(box.name, _width(box), 26.0 + 13.0 * len(box.small)) for box in picture.boxes}
    frame = Box("plan")
    for arrow in picture.arrows:
        link = Link(arrow.target, "state" if arrow.kind == "message" else "data", labels=arrow.labels)
        # messages go upwards, so they have no say in the layers
        weight = 0.0 if arrow.kind == "message" else 2.0
        link.edge = Edge(items[arrow.source], items[arrow.target], link.label_extent, weight)
        frame.links.append(link)
    arrangement = arrange(list(items.values()), [link.edge for link in frame.links])
    width = max(arrangement.width, LEAST_WIDTH)
    left, top = MARGIN + (width - arrangement.width) / 2, MARGIN
    out: list[str] = []
    for box in picture.boxes:
        out += _operator(box, items[box.name], left, top)
    ends = Ends(frame)
    for arrow, link in zip(picture.arrows, frame.links, strict=True):
        path, tip = route(link.edge, ends, arrangement, left, top)
        out += [line(arrow.kind, path, STROKES[arrow.kind], DASHES[arrow.kind]), arrow_head(*tip, STROKES[arrow.kind])]
    for arrow, link in zip(picture.arrows, frame.links, strict=True):
        if link.edge.label_item is not None:
            out += label(link.edge.label_item, link.label_lines, left, top, STROKES[arrow.kind])
    below = top + arrangement.height + 24
    explained = picture.places if picture.explains_places else []
    entries: list[LegendEntry] = [(swatch(*COLOURS[place]), PLACES[place]) for place in explained]
    entries += [(stroke(STROKES[kind], DASHES[kind]), KINDS[kind]) for kind in picture.kinds]
    elements, rows = legend(entries, MARGIN, width, below)
    return page("Plan", width + 2 * MARGIN, below + 20 * rows, [*out, *elements])


def _width(box: OperatorBox) -> float:
    texts = [sans_width(box.name, NAME_SIZE, bold=True), *(sans_width(text, SMALL_SIZE) for text in box.small)]
    return max(texts) + 2 * INDENT


def _operator(box: OperatorBox, item: Item, left: float, top: float) -> list[str]:
    fill, border = COLOURS[box.place]
    x, y = left + item.x - item.width / 2, top + item.y
    radius = 13 if box.begins else 6
    out = [
        f'<rect class="operator" data-name="{escape(box.name)}" data-place="{box.place}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{item.width:.1f}" height="{item.height:.1f}" rx="{radius}" fill="{fill}" stroke="{border}"/>',
        text_element(box.name, x + INDENT, y + 17, NAME_SIZE, INK, bold=True),
    ]
    for number, text in enumerate(box.small):
        out.append(text_element(text, x + INDENT, y + 31 + 13 * number, SMALL_SIZE, GREY))
    return out


FORMS = {"mermaid": to_mermaid, "svg": to_svg}


def draw(graph: PlanGraph, form: str = "mermaid", seconds: float | None = None) -> str:
    """Draws a plan: operators with their settings, coloured by where they run, and what flows between them.

    Solid arrows are streams, with item type, capacity and what happens when full; thick ones are parallel. Dashed ones
    are messages: weights, priorities, what `notify` sends. Dotted ones are items that a memory keeps and gives out.

    Args:
        graph: The operators of the plan.
        form: "mermaid" or "svg".
        seconds: How long the plan has been running; None if it was not started.

    Returns:
        The text of the picture; the same plan gives the same text.

    Raises:
        PlanError: Unknown form.
    """
    if form not in FORMS:
        raise PlanError("unknown form of a picture", where="draw", received=repr(form), fix=nearest(form, FORMS))
    return FORMS[form](make_picture(graph, seconds))


__all__ = ["FORMS", "draw"]

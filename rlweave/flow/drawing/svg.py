"""A picture of a plan as self-contained SVG, laid out as the pictures of component graphs are."""

from __future__ import annotations

from html import escape

from rlweave.flow.drawing.mermaid import COLOURS
from rlweave.flow.drawing.picture import KINDS, PLACES, Kind, OperatorBox, PlanPicture
from rlweave.graph.drawing.boxes import Box, Ends, Link
from rlweave.graph.drawing.elements import (
    GREY,
    INK,
    LegendEntry,
    arrow_head,
    label,
    legend,
    line,
    page,
    stroke,
    swatch,
    text_element,
)
from rlweave.graph.drawing.layered import Edge, Item, arrange
from rlweave.graph.drawing.paths import route
from rlweave.graph.drawing.typography import sans_width

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
    entries: list[LegendEntry] = [(swatch(*COLOURS[place]), PLACES[place]) for place in picture.places]
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

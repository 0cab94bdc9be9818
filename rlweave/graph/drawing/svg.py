"""A picture of a component graph as self-contained SVG: nested boxes, arrows, a legend."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from itertools import pairwise

from rlweave.graph.drawing.boxes import (
    CONTAINER_SIZES,
    FUNCTION_SIZE,
    INDENT,
    LABEL_SIZE,
    LEAF_SIZES,
    METHOD_SIZE,
    Box,
    Ends,
    Link,
    class_offset,
    lay_out,
)
from rlweave.graph.drawing.dataflow import Picture
from rlweave.graph.drawing.layered import Arrangement
from rlweave.graph.drawing.parts import Part
from rlweave.graph.drawing.typography import MONO, SANS, sans_width

MARGIN, ARROW, LEAST_WIDTH = 16.0, 7.0, 420.0
INK, GREY, WHITE = "#1f2937", "#64748b", "#ffffff"
#: One colour per API method, in their order; what several methods share is grey.
METHOD_COLOURS = ("#2563eb", "#c2410c", "#7c3aed", "#0f766e", "#be185d", "#4d7c0f", "#0369a1", "#92400e")
#: (fill of a component, fill of a container, border) by place; the first is the backend's own device.
PLACE_COLOURS = (
    ("#dbeafe", "#f5f9ff", "#7aa7e0"),
    ("#dcfce7", "#f4fdf7", "#6fbf8b"),
    ("#ede9fe", "#f9f7ff", "#a78bdb"),
)
HOST_COLOURS = ("#ffedd0", "#fffaf0", "#dba44e")
ROOT_COLOURS = (WHITE, WHITE, "#cbd5e1")
KIND_COLOURS = {"trainable": "#16a34a", "frozen": "#94a3b8", "state": "#a16207"}
DASHES = {"data": "", "gradient": "7 3", "state": "2 3"}


def to_svg(picture: Picture) -> str:
    """Draws a picture as SVG text."""
    return _Drawing(picture).text()


class _Drawing:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.colours = {name: METHOD_COLOURS[i % len(METHOD_COLOURS)] for i, name in enumerate(picture.declared)}
        places = list(dict.fromkeys(part.place for part in picture.parts.values()))
        devices = [place for place in places if place != "host"]
        self.places = {place: PLACE_COLOURS[i % len(PLACE_COLOURS)] for i, place in enumerate(devices)}
        if "host" in places:
            self.places["host"] = HOST_COLOURS
        self.out: list[str] = []

    def text(self) -> str:
        """The whole picture."""
        root = lay_out(self.picture)
        width = max(root.width, LEAST_WIDTH)
        root.place(MARGIN + (width - root.width) / 2, MARGIN)
        self._box(root)
        rows = self._legend(width, root.top + root.height + 20)
        width, height = width + 2 * MARGIN, root.top + root.height + 20 * rows + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        )
        title = f"<title>Component graph of {escape(self.picture.root)}</title>"
        ground = f'<rect width="100%" height="100%" rx="10" fill="{WHITE}"/>'
        return "\n".join([head, title, ground, *self.out, "</svg>"]) + "\n"

    # -- boxes ---------------------------------------------------------------------------------------------------

    def _box(self, box: Box) -> None:
        if box.part is None:
            self._method(box)
        elif "#" in box.name:
            self._function(box, box.part)
        elif box.arrangement is None:
            self._component(box, box.part)
        else:
            self._container(box, box.part, box.arrangement)

    def _method(self, box: Box) -> None:
        colour = self.colours[box.name.partition(":")[2]]
        entry = box.name.startswith("in:")
        self._rect("method", box, 12, colour if entry else WHITE, colour)
        middle = box.left + box.width / 2
        self._text(box.title, middle, box.top + 16, METHOD_SIZE, WHITE if entry else colour, MONO, "middle")

    def _function(self, box: Box, part: Part) -> None:
        border = self.places[part.place][2]
        self._rect("function", box, 4, WHITE, border)
        self._text("ƒ", box.left + 8, box.top + 15, 12.0, border)
        self._text(box.title, box.left + 21, box.top + 15, FUNCTION_SIZE, INK, MONO)

    def _component(self, box: Box, part: Part) -> None:
        fill, _, border = self.places[part.place]
        self._rect("component", box, 6, fill, border, part)
        if part.kind:
            self.out.append(
                f'<rect x="{box.left + 4:.1f}" y="{box.top + 5:.1f}" width="3.5" height="{box.height - 10:.1f}" '
                f'rx="1.7" fill="{KIND_COLOURS[part.kind]}"/>'
            )
        self._names(box, part, LEAF_SIZES, 16)
        for i, text in enumerate(box.small):
            self._text(text, box.left + INDENT, box.top + 30 + 13 * i, LEAF_SIZES[2], GREY)

    def _container(self, box: Box, part: Part, arrangement: Arrangement) -> None:
        _, fill, border = ROOT_COLOURS if part.path == self.picture.root else self.places[part.place]
        self._rect("component", box, 9, fill, border, part)
        self._names(box, part, CONTAINER_SIZES, 17)
        self._text(box.small[0], box.left + INDENT, box.top + 32, CONTAINER_SIZES[2], GREY)
        for inner, _ in box.inside:
            self._box(inner)
        ends = Ends(box)
        left, top = box.left + box.inner_left, box.top + box.inner_top
        for link in box.links:
            self._link(link, ends, arrangement, left, top)
        for link in box.links:
            self._label(link, left, top)
        for item in box.ports.values():
            self.out.append(f'<circle cx="{left + item.x:.1f}" cy="{top + item.y:.1f}" r="3" fill="{GREY}"/>')

    def _names(self, box: Box, part: Part, sizes: tuple[float, float, float], drop: float) -> None:
        left, y = box.left + INDENT, box.top + drop
        self._text(part.scope, left, y, sizes[0], INK, bold=True)
        self._text(part.class_name, left + class_offset(part, sizes), y, sizes[1], GREY)

    # -- links ---------------------------------------------------------------------------------------------------

    def _link(self, link: Link, ends: Ends, arrangement: Arrangement, left: float, top: float) -> None:
        edge, chain = link.edge, link.edge.chain
        xs = [ends.first[id(edge)], *(item.x for item in chain[1:-1]), ends.last[id(edge)]]
        xs = [x + left for x in xs]
        first, last = chain[0].y + chain[0].height + top, chain[-1].y + top
        if edge.flat:
            last += chain[-1].height
            tip = (xs[-1], last, -1)
            below = arrangement.bottoms[chain[0].layer] + top
            middle = chain[1].y + chain[1].height / 2 + top
            path = _path_below(xs, chain[1].width / 2, first, last + ARROW - 1, below, middle)
        else:
            tip = (xs[0], first, -1) if edge.upward else (xs[-1], last, 1)
            if edge.upward:
                first += ARROW - 1
            elif link.target != "out":
                last -= ARROW - 1
            rows = [(arrangement.bottoms[a.layer] + top, arrangement.tops[b.layer] + top) for a, b in pairwise(chain)]
            path = _path_down(xs, first, last, rows)
        dash = f' stroke-dasharray="{DASHES[link.kind]}"' if DASHES[link.kind] else ""
        colour = self._colour(link)
        self.out.append(
            f'<path class="{link.kind}" d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>'
        )
        if link.target != "out":
            self._arrow(*tip, colour)

    def _colour(self, link: Link) -> str:
        return self.colours[link.methods[0]] if len(link.methods) == 1 else GREY

    def _arrow(self, x: float, y: float, down: int, colour: str) -> None:
        back = y - ARROW * down
        points = f"{x:.1f},{y:.1f} {x - 3.6:.1f},{back:.1f} {x + 3.6:.1f},{back:.1f}"
        self.out.append(f'<polygon points="{points}" fill="{colour}"/>')

    def _label(self, link: Link, left: float, top: float) -> None:
        item = link.edge.label_item
        if item is None:
            return
        x, y = left + item.x, top + item.y
        self.out.append(
            f'<rect class="label" x="{x - item.width / 2:.1f}" y="{y:.1f}" width="{item.width:.1f}" '
            f'height="{item.height:.1f}" rx="3" fill="{WHITE}" fill-opacity="0.94"/>'
        )
        for i, line in enumerate(link.label_lines):
            self._text(line, x, y + 9.5 + i * (LABEL_SIZE + 2), LABEL_SIZE, self._colour(link), MONO, "middle")

    # -- SVG elements --------------------------------------------------------------------------------------------

    def _rect(self, kind: str, box: Box, radius: float, fill: str, border: str, part: Part | None = None) -> None:
        start = f'<rect class="{kind}"'
        end = "/>"
        if part is not None:
            start += f' data-path="{escape(part.path)}"'
            hover = [f"{part.path} ({part.class_name}, {part.place})", *part.functions, *part.details]
            end = f"><title>{escape(chr(10).join(hover))}</title></rect>"
            if part.kind == "frozen":
                end = f' stroke-dasharray="5 3"{end}'
        self.out.append(
            f'{start} x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
            f'rx="{radius}" fill="{fill}" stroke="{border}"{end}'
        )

    def _text(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        colour: str,
        font: str = SANS,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        if text:
            weight = ' font-weight="bold"' if bold else ""
            place = "" if anchor == "start" else f' text-anchor="{anchor}"'
            self.out.append(
                f'<text x="{x:.1f}" y="{y:.1f}" font-family="{font}" font-size="{size:g}"{weight}{place} '
                f'fill="{colour}">{escape(text)}</text>'
            )

    def _legend(self, width: float, top: float) -> int:
        """Draws what colours and strokes mean; returns the number of rows."""
        entries: list[tuple[Callable[[float, float], str], str]] = []
        for place, (fill, _, border) in self.places.items():
            entries.append((_swatch(fill, border), "on the host (NumPy)" if place == "host" else f"on {place}"))
        kinds = {part.kind for part in self.picture.parts.values() if not part.children}
        names = {"trainable": "trainable", "frozen": "frozen", "state": "other state"}
        entries += [(_bar(KIND_COLOURS[kind]), text) for kind, text in names.items() if kind in kinds]
        flows = {flow.kind for flow in self.picture.flows}
        arrows = {"data": "data", "gradient": "gradients", "state": "variables written or read"}
        entries += [(_stroke(GREY, DASHES[kind]), text) for kind, text in arrows.items() if kind in flows]
        if len(self.picture.methods) > 1:
            entries.append((_stroke(METHOD_COLOURS[0], ""), "in one method only: its colour"))
        x, row = 0.0, 0
        for shape, text in entries:
            wide = 28 + sans_width(text, 10.0) + 14
            if x and x + wide > width:
                x, row = 0.0, row + 1
            self.out.append(shape(MARGIN + x, top + 20 * row))
            self._text(text, MARGIN + x + 28, top + 4 + 20 * row, 10.0, INK)
            x += wide
        return row + 1


def _path_down(xs: list[float], first: float, last: float, rows: list[tuple[float, float]]) -> str:
    """Straight down through layers, bent between them.

    Args:
        xs: One per layer.
        first: y of the upper end.
        last: y of the lower end.
        rows: (bottom of a layer, top of the next) for each bend.
    """
    path = [f"M{xs[0]:.1f},{first:.1f}"]
    for x, next_x, (bottom, top) in zip(xs, xs[1:], rows, strict=False):
        upper, lower = max(bottom, first), min(top, last)
        half = (upper + lower) / 2
        path.append(f"V{upper:.1f} C{x:.1f},{half:.1f} {next_x:.1f},{half:.1f} {next_x:.1f},{lower:.1f}")
    return " ".join([*path, f"V{last:.1f}"])


def _path_below(xs: list[float], half_label: float, first: float, last: float, below: float, middle: float) -> str:
    """From one box to another of the same layer, through a label below it.

    Args:
        xs: Of the start, the label, the end.
        half_label: Half the width of the label.
        first: y of the start.
        last: y of the end.
        below: y of the bottom of the layer.
        middle: y of the label's middle.
    """
    side = half_label if xs[2] > xs[0] else -half_label
    near, far = xs[1] - side, xs[1] + side
    return (
        f"M{xs[0]:.1f},{first:.1f} V{below:.1f} "
        f"C{xs[0]:.1f},{middle:.1f} {(xs[0] + near) / 2:.1f},{middle:.1f} {near:.1f},{middle:.1f} H{far:.1f} "
        f"C{(far + xs[2]) / 2:.1f},{middle:.1f} {xs[2]:.1f},{middle:.1f} {xs[2]:.1f},{below:.1f} V{last:.1f}"
    )


def _swatch(fill: str, border: str) -> Callable[[float, float], str]:
    return lambda x, y: (
        f'<rect x="{x:.1f}" y="{y - 6:.1f}" width="22" height="12" rx="3" fill="{fill}" stroke="{border}"/>'
    )


def _bar(colour: str) -> Callable[[float, float], str]:
    return lambda x, y: f'<rect x="{x + 18:.1f}" y="{y - 6:.1f}" width="4" height="12" rx="2" fill="{colour}"/>'


def _stroke(colour: str, dash: str) -> Callable[[float, float], str]:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return lambda x, y: f'<path d="M{x:.1f},{y:.1f} H{x + 22:.1f}" stroke="{colour}" stroke-width="1.4"{dashes}/>'

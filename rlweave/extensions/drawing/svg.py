"""A picture of a component graph as self-contained SVG: nested boxes, arrows, a legend."""

from __future__ import annotations

from html import escape

from rlweave.extensions.drawing.boxes import (
    CONTAINER_SIZES,
    FUNCTION_SIZE,
    INDENT,
    LEAF_SIZES,
    METHOD_SIZE,
    class_offset,
    lay_out,
)
from rlweave.extensions.drawing.dataflow import Picture
from rlweave.extensions.drawing.parts import Part
from rlweave.view.layout.boxes import MONO, SANS, Box, Ends, Link
from rlweave.view.layout.elements import (
    GREY,
    INK,
    WHITE,
    LegendEntry,
    arrow_head,
    bar,
    label,
    legend,
    line,
    page,
    route,
    stroke,
    swatch,
    text_element,
)
from rlweave.view.layout.layered import Arrangement

MARGIN, LEAST_WIDTH = 16.0, 420.0
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
        return page(f"Component graph of {self.picture.root}", width, height, self.out)

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
        path, tip = route(link.edge, ends, arrangement, left, top, link.target != "out")
        colour = self._colour(link)
        self.out.append(line(link.kind, path, colour, DASHES[link.kind]))
        if link.target != "out":
            self.out.append(arrow_head(*tip, colour))

    def _colour(self, link: Link) -> str:
        return self.colours[link.methods[0]] if len(link.methods) == 1 else GREY

    def _label(self, link: Link, left: float, top: float) -> None:
        if link.edge.label_item is not None:
            self.out += label(link.edge.label_item, link.label_lines, left, top, self._colour(link))

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
            self.out.append(text_element(text, x, y, size, colour, font, anchor, bold))

    def _legend(self, width: float, top: float) -> int:
        """Draws what colours and strokes mean; returns the number of rows."""
        entries: list[LegendEntry] = []
        for place, (fill, _, border) in self.places.items():
            entries.append((swatch(fill, border), "on the host (NumPy)" if place == "host" else f"on {place}"))
        kinds = {part.kind for part in self.picture.parts.values() if not part.children}
        names = {"trainable": "trainable", "frozen": "frozen", "state": "other state"}
        entries += [(bar(KIND_COLOURS[kind]), text) for kind, text in names.items() if kind in kinds]
        flows = {flow.kind for flow in self.picture.flows}
        arrows = {"data": "data", "gradient": "gradients", "state": "variables written or read"}
        entries += [(stroke(GREY, DASHES[kind]), text) for kind, text in arrows.items() if kind in flows]
        if len(self.picture.methods) > 1:
            entries.append((stroke(METHOD_COLOURS[0], ""), "in one method only: its colour"))
        elements, rows = legend(entries, MARGIN, width, top)
        self.out += elements
        return rows

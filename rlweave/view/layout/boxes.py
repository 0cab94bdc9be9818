"""Nested boxes, how wide their text is, and where the links between them begin and end.

Widths of text are upper bounds for the fonts that the pictures name; no font is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlweave.view.layout.layered import Arrangement, Edge, Item

SANS = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"

#: Widths of DejaVu Sans in thousandths of its size (Verdana's are the same within 3%, other fonts' are smaller).
_WIDTHS = {
    **dict.fromkeys("ijl'|", 300),
    **dict.fromkeys("I.,:;!·", 320),
    **dict.fromkeys("ft()[]/-r ", 410),
    **dict.fromkeys("szJcvxyk_", 600),
    **dict.fromkeys("mMW@%w", 990),
    **dict.fromkeys("+<=>~", 840),
    **dict.fromkeys("GOQDNHUAVX", 790),
}


def sans_width(text: str, size: float, bold: bool = False) -> float:
    """An upper estimate of the width of a line.

    >>> sans_width("ii", 10.0)
    6.0
    """
    return sum(_WIDTHS.get(letter, 650) for letter in text) * size / 1000 * (1.14 if bold else 1.0)


def mono_width(text: str, size: float) -> float:
    """The width of a line in a monospaced font."""
    return len(text) * size * 0.605


PADDING, HEADER = 14.0, 40.0
LABEL_SIZE, LABEL_LINES = 10.0, 4


@dataclass(eq=False)
class Link:
    """The flows of one kind between two boxes of one container.

    Args:
        target: Name of the box that it goes to; "out" leaves the container.
        kind: "data", "gradient" or "state".
        labels: Names of the flows.
        methods: Their API methods.
        edge: Where it runs.
    """

    target: str
    kind: str
    labels: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    edge: Edge = field(default_factory=lambda: Edge(Item("", 0, 0), Item("", 0, 0)))

    @property
    def label_lines(self) -> list[str]:
        """Its labels, cut to a few lines."""
        if len(self.labels) <= LABEL_LINES:
            return self.labels
        return [*self.labels[: LABEL_LINES - 1], f"+{len(self.labels) - LABEL_LINES + 1} more"]

    @property
    def label_extent(self) -> tuple[float, float] | None:
        """Width and height of its label."""
        lines = self.label_lines
        if not lines:
            return None
        return max(mono_width(line, LABEL_SIZE) for line in lines) + 8, len(lines) * (LABEL_SIZE + 2) + 3


@dataclass(eq=False)
class Box:
    """A box with what is inside it.

    Args:
        name: What the links of its container call it.
        title: Its text.
        part: The part that it shows, for the drawing.
        small: Lines of small print below its name.
        inside: Boxes of a container, with their places.
        links: Between those boxes.
        ports: "in" and "out": where flows cross the border of a container.
        arrangement: The layout of what is inside.
        left: Set by `place`.
        top: Set by `place`.
    """

    name: str
    title: str = ""
    part: Any = None
    width: float = 0.0
    height: float = 0.0
    small: list[str] = field(default_factory=list)
    inside: list[tuple[Box, Item]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    ports: dict[str, Item] = field(default_factory=dict)
    arrangement: Arrangement | None = None
    left: float = 0.0
    top: float = 0.0

    @property
    def inner_left(self) -> float:
        """Where what is inside begins, from the left border."""
        return (self.width - self.arrangement.width) / 2 if self.arrangement is not None else 0.0

    @property
    def inner_top(self) -> float:
        """Where what is inside begins, from the top border."""
        return HEADER + (0.0 if "in" in self.ports or not self.inside else PADDING / 2)

    def place(self, left: float, top: float) -> None:
        """Moves the box, with all that is inside, to a place on the page."""
        self.left, self.top = left, top
        for box, item in self.inside:
            box.place(left + self.inner_left + item.x - item.width / 2, top + self.inner_top + item.y)


class Ends:
    """Where the edges of a container touch its boxes: x of the first and the last end of each chain, by edge."""

    def __init__(self, box: Box) -> None:
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        sides: dict[tuple[int, str], list[tuple[float, int, dict[int, float]]]] = {}
        items: dict[int, Item] = {}
        for link in box.links:
            edge = link.edge
            top, bottom = edge.chain[0], edge.chain[-1]
            items[id(top)], items[id(bottom)] = top, bottom
            if top.port is not None and not edge.upward and link.kind != "state":
                self.first[id(edge)] = top.x + top.port
            else:
                sides.setdefault((id(top), "lower"), []).append((edge.chain[1].x, id(edge), self.first))
            side = "lower" if edge.flat else "upper"
            sides.setdefault((id(bottom), side), []).append((edge.chain[-2].x, id(edge), self.last))
        for (key, side), touching in sides.items():
            touching.sort(key=lambda entry: entry[0])
            item = items[key]
            taken = item.x + item.port if item.port is not None and side == "lower" else None
            places = _spread(item, [x for x, _, _ in touching], taken)
            for (_, edge_key, result), x in zip(touching, places, strict=True):
                result[edge_key] = x


def _spread(item: Item, wanted: list[float], taken: float | None) -> list[float]:
    """Touching points on one side of a box: near the wanted ones, apart from each other and off the corners."""
    if item.width == 0.0:
        return [item.x] * len(wanted)
    left, right = item.x - item.width / 2 + 12, item.x + item.width / 2 - 12
    step = min(14.0, (right - left) / max(len(wanted) - 1, 1))
    places: list[float] = []
    for i, x in enumerate(wanted):
        if taken is not None and abs(x - taken) < step:
            x = taken + (step if x >= taken else -step)
        least = left if not places else places[-1] + step
        places.append(min(max(x, least), right - step * (len(wanted) - 1 - i)))
    return places

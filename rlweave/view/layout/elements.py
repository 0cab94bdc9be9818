"""The elements that SVG pictures are made of: labels, bars, arrows, and lines between boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

from rlweave.view.layout.boxes import LABEL_SIZE, MONO, SANS, Ends, sans_width
from rlweave.view.layout.layered import Arrangement, Edge, Item

ARROW = 7.0
"""Length of the head of an arrow."""


def route(
    edge: Edge, ends: Ends, arrangement: Arrangement, left: float, top: float, arrow: bool = True
) -> tuple[str, tuple[float, float, int]]:
    """The line of an edge.

    Args:
        edge: As `arrange` has laid it out.
        ends: Where the edges touch the boxes.
        arrangement: The layout that it belongs to.
        left: Where that stands on the page.
        top: Likewise.
        arrow: Whether it ends with an arrow, for which the line leaves room.

    Returns:
        The path, and the tip of the arrow: x, y, and 1 where it points down, -1 up.
    """
    chain = edge.chain
    xs = [ends.first[id(edge)], *(item.x for item in chain[1:-1]), ends.last[id(edge)]]
    xs = [x + left for x in xs]
    first, last = chain[0].y + chain[0].height + top, chain[-1].y + top
    if edge.flat:
        last += chain[-1].height
        below = arrangement.bottoms[chain[0].layer] + top
        middle = chain[1].y + chain[1].height / 2 + top
        path = _path_below(xs, chain[1].width / 2, first, last + ARROW - 1, below, middle)
        return path, (xs[-1], last, -1)
    tip = (xs[0], first, -1) if edge.upward else (xs[-1], last, 1)
    if edge.upward:
        first += ARROW - 1
    elif arrow:
        last -= ARROW - 1
    rows = [(arrangement.bottoms[a.layer] + top, arrangement.tops[b.layer] + top) for a, b in pairwise(chain)]
    return _path_down(xs, first, last, rows), tip


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


INK, GREY, WHITE = "#1f2937", "#64748b", "#ffffff"
LegendEntry = tuple[Callable[[float, float], str], str]
"""What draws a sample at a place (x, y), and what it means."""


def page(title: str, width: float, height: float, elements: Sequence[str]) -> str:
    """A whole picture on a white ground."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    )
    ground = f'<rect width="100%" height="100%" rx="10" fill="{WHITE}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *elements, "</svg>"]) + "\n"


def text_element(
    text: str,
    x: float,
    y: float,
    size: float,
    colour: str,
    font: str = SANS,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    """A line of text."""
    weight = ' font-weight="bold"' if bold else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="{font}" font-size="{size:g}"{weight}{place} '
        f'fill="{colour}">{escape(text)}</text>'
    )


def line(kind: str, path: str, colour: str, dashes: str) -> str:
    """A line of some kind; ``dashes`` as SVG writes them, empty for none."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{kind}" d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>'


def arrow_head(x: float, y: float, down: int, colour: str) -> str:
    """The head of an arrow with its tip at (x, y)."""
    back = y - ARROW * down
    points = f"{x:.1f},{y:.1f} {x - 3.6:.1f},{back:.1f} {x + 3.6:.1f},{back:.1f}"
    return f'<polygon points="{points}" fill="{colour}"/>'


def label(item: Item, lines: Sequence[str], left: float, top: float, colour: str) -> list[str]:
    """The label of an edge at its place in a layout that stands at (left, top)."""
    x, y = left + item.x, top + item.y
    ground = (
        f'<rect class="label" x="{x - item.width / 2:.1f}" y="{y:.1f}" width="{item.width:.1f}" '
        f'height="{item.height:.1f}" rx="3" fill="{WHITE}" fill-opacity="0.94"/>'
    )
    texts = [
        text_element(text, x, y + 9.5 + i * (LABEL_SIZE + 2), LABEL_SIZE, colour, MONO, "middle")
        for i, text in enumerate(lines)
    ]
    return [ground, *texts]


def legend(entries: Sequence[LegendEntry], margin: float, width: float, top: float) -> tuple[list[str], int]:
    """What colours and strokes mean, in rows that are ``width`` wide; the elements and the number of rows."""
    out: list[str] = []
    x, row = 0.0, 0
    for shape, text in entries:
        wide = 28 + sans_width(text, 10.0) + 14
        if x and x + wide > width:
            x, row = 0.0, row + 1
        out += [shape(margin + x, top + 20 * row), text_element(text, margin + x + 28, top + 4 + 20 * row, 10.0, INK)]
        x += wide
    return out, row + 1


def swatch(fill: str, border: str) -> Callable[[float, float], str]:
    """A sample of a box."""
    return lambda x, y: (
        f'<rect x="{x:.1f}" y="{y - 6:.1f}" width="22" height="12" rx="3" fill="{fill}" stroke="{border}"/>'
    )


def bar(colour: str) -> Callable[[float, float], str]:
    """A sample of the bar in a box."""
    return lambda x, y: f'<rect x="{x + 18:.1f}" y="{y - 6:.1f}" width="4" height="12" rx="2" fill="{colour}"/>'


def stroke(colour: str, dash: str) -> Callable[[float, float], str]:
    """A sample of a line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return lambda x, y: f'<path d="M{x:.1f},{y:.1f} H{x + 22:.1f}" stroke="{colour}" stroke-width="1.4"{dashes}/>'

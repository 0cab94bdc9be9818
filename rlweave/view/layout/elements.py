"""The elements that SVG pictures are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from rlweave.view.layout.boxes import LABEL_SIZE
from rlweave.view.layout.layered import Item
from rlweave.view.layout.paths import ARROW
from rlweave.view.layout.typography import MONO, SANS, sans_width

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

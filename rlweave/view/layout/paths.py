"""Where lines between the boxes of a layout run, as SVG paths."""

from __future__ import annotations

from itertools import pairwise

from rlweave.view.layout.boxes import Ends
from rlweave.view.layout.layered import Arrangement, Edge

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

"""A layered layout of boxes and edges, top to bottom (Sugiyama, Tagawa and Toda 1981).

Cycles are cut, boxes go to layers, labels of edges become boxes of layers in between, long edges get a place in each
layer that they pass, layers are ordered to have few crossings, and positions follow from the neighbours. So nothing
overlaps by construction: boxes, labels and passing lines are all separated items of a layer. No randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

#: Space between neighbours of a layer: boxes, lines.
GAP, LINE_GAP = 26.0, 14.0
#: Least and most space between layers; wide turns get more.
LAYER_GAP, WIDE_LAYER_GAP = 16.0, 44.0


@dataclass(eq=False)
class Item:
    """A box to be placed, or a point that a long edge passes.

    Args:
        name: For people; boxes have unique names.
        width: Of the box.
        height: Of the box.
        rank: "first" or "last" pins it to an end.
        port: Where its loose edges leave downwards, measured from the middle; None for anywhere.
        line: Whether it is only a line (or the label of one).
        x: Middle, set by `arrange`.
        y: Top, set by `arrange`.
        layer: Its layer, set by `arrange`.
        order: Its place within the layer, set by `arrange`.
    """

    name: str
    width: float
    height: float
    rank: str = ""
    port: float | None = None
    line: bool = False
    x: float = 0.0
    y: float = 0.0
    layer: int = 0
    order: int = 0


@dataclass(eq=False)
class Edge:
    """An edge between two boxes.

    Args:
        source: From.
        target: To.
        label: Width and height of its label; None without one.
        weight: How much a cut of cycles should spare it; 0: it has no say in the layers.
        chain: Items from the upper to the lower end, set by `arrange`; for an edge within a layer its label is between.
        label_item: The one that holds the label.
        upward: Whether it runs against the layers.
        flat: Whether both ends are in one layer; then it runs below it.
    """

    source: Item
    target: Item
    label: tuple[float, float] | None = None
    weight: float = 1.0
    chain: list[Item] = field(default_factory=list)
    label_item: Item | None = None
    upward: bool = False
    flat: bool = False


@dataclass
class Arrangement:
    """The size of a layout, and top and bottom of each layer."""

    width: float
    height: float
    tops: list[float]
    bottoms: list[float]


def arrange(items: Sequence[Item], edges: Sequence[Edge]) -> Arrangement:
    """Sets the positions of all items, and the chains of all edges.

    Args:
        items: Boxes with unique names, in the order to prefer.
        edges: Between two different ones of them.
    """
    if not items:
        return Arrangement(0.0, 0.0, [], [])
    _cut_cycles(items, edges)
    linked = {id(end) for edge in edges for end in (edge.source, edge.target)}
    loose = [item for item in items if id(item) not in linked and not item.rank]
    _assign_layers([item for item in items if item not in loose], [edge for edge in edges if edge.weight])
    _place_loose(loose, [item for item in items if item not in loose])
    layers = _place_lines(items, edges)
    order_layers(layers, [(a, b) for edge in edges for a, b in _links(edge)])
    _set_columns(layers, edges)
    return _set_rows(layers, edges)


# -- layers ------------------------------------------------------------------------------------------------------


def _cut_cycles(items: Sequence[Item], edges: Sequence[Edge]) -> None:
    """Turns edges around so that no cycle is left (greedy, Eades, Lin and Smyth 1993)."""
    head: list[Item] = [item for item in items if item.rank == "first"]
    tail: list[Item] = [item for item in items if item.rank == "last"]
    left = [item for item in items if not item.rank]
    inner = [e for e in edges if not e.source.rank and not e.target.rank and e.weight]
    end: list[Item] = []
    while left:
        alive = {id(item) for item in left}
        out = {id(item): 0.0 for item in left}
        into = {id(item): 0.0 for item in left}
        for edge in inner:
            if id(edge.source) in alive and id(edge.target) in alive:
                out[id(edge.source)] += edge.weight
                into[id(edge.target)] += edge.weight
        sink = next((item for item in reversed(left) if not out[id(item)]), None)
        source = next((item for item in left if not into[id(item)]), None)
        if sink is not None:
            end.append(sink)
            left.remove(sink)
        elif source is not None:
            head.append(source)
            left.remove(source)
        else:
            best = max(left, key=lambda item: out[id(item)] - into[id(item)])
            head.append(best)
            left.remove(best)
    for i, item in enumerate([*head, *end[::-1], *tail]):
        item.order = i
    for edge in edges:
        edge.upward = edge.source.order > edge.target.order


def _ends(edge: Edge) -> tuple[Item, Item]:
    return (edge.target, edge.source) if edge.upward else (edge.source, edge.target)


def _assign_layers(items: Sequence[Item], edges: Sequence[Edge]) -> None:
    """Longest path from the top; then boxes move down where that shortens more edges than it lengthens."""
    above: dict[int, list[Edge]] = {id(item): [] for item in items}
    below: dict[int, list[Edge]] = {id(item): [] for item in items}
    for edge in edges:
        upper, lower = _ends(edge)
        below[id(upper)].append(edge)
        above[id(lower)].append(edge)
    ordered = sorted(items, key=lambda item: item.order)
    pinned = any(item.rank == "first" for item in items)
    for item in ordered:
        item.layer = 0 if item.rank == "first" else int(pinned)
        for edge in above[id(item)]:
            item.layer = max(item.layer, _ends(edge)[0].layer + 1)
    last = max((item.layer for item in items), default=0)
    if any(item.rank == "last" for item in items):
        last = max(last, 1 + max((item.layer for item in items if item.rank != "last"), default=-1))
    for item in reversed(ordered):
        if item.rank == "last":
            item.layer = last
        elif item.rank != "first" and below[id(item)] and len(below[id(item)]) >= len(above[id(item)]):
            item.layer = min(_ends(edge)[1].layer for edge in below[id(item)]) - 1


def _place_loose(loose: Sequence[Item], items: Sequence[Item]) -> None:
    """Puts boxes without edges where there is most room."""
    widths: dict[int, float] = {}
    for item in items:
        if not item.rank:
            widths[item.layer] = widths.get(item.layer, 0.0) + item.width + GAP
    pinned = any(item.rank == "first" for item in items)
    for item in loose:
        item.layer = min(widths, key=lambda layer: (widths[layer], layer), default=int(pinned))
        widths[item.layer] = widths.get(item.layer, 0.0) + item.width + GAP


def _place_lines(items: Sequence[Item], edges: Sequence[Edge]) -> list[list[Item]]:
    """Makes room for labels: a layer below each, and another one where edges run within a layer.

    Every edge gets an item in each layer that it passes; the emptiest layer of labels among them holds its label.
    """
    for edge in edges:
        edge.upward = edge.source.layer > edge.target.layer
        edge.flat = edge.source.layer == edge.target.layer
    flat = {edge.source.layer for edge in edges if edge.flat}
    count = max(item.layer for item in items) + 1
    place: list[int] = []  # of each layer among all
    for layer in range(count):
        place.append(place[-1] + 2 + (layer - 1 in flat) if place else 0)
    homes = {place[layer] - 1 for layer in range(1, count)}
    layers: list[list[Item]] = [[] for _ in range(place[-1] + 1 + (count - 1 in flat))]
    for item in sorted(items, key=lambda item: item.order):
        item.layer = place[item.layer]
        layers[item.layer].append(item)
    filled = [0.0] * len(layers)
    for edge in edges:
        upper, lower = _ends(edge)
        between = [upper.layer + 1] if edge.flat else list(range(upper.layer + 1, lower.layer))
        possible = between if edge.flat else [layer for layer in between if layer in homes]
        home = min(possible, key=lambda layer: (round(filled[layer]), layer)) if edge.label else None
        edge.chain = [upper]
        for layer in between:
            item = Item("", 0.0, 0.0, line=True, layer=layer)
            if layer == home and edge.label is not None:
                item.width, item.height = edge.label
                filled[layer] += item.width + LINE_GAP
                edge.label_item = item
            layers[layer].append(item)
            edge.chain.append(item)
        edge.chain.append(lower)
    return layers


def _links(edge: Edge) -> list[tuple[Item, Item]]:
    """(upper item, lower item) of each piece."""
    pairs = list(pairwise(edge.chain))
    return [(a, b) if a.layer < b.layer else (b, a) for a, b in pairs]


# -- positions ---------------------------------------------------------------------------------------------------


def _set_columns(layers: list[list[Item]], edges: Sequence[Edge]) -> None:
    """Middles of all items: near those of their neighbours, apart from each other."""
    near_above: dict[int, list[tuple[Item, float, float]]] = {}
    near_below: dict[int, list[tuple[Item, float, float]]] = {}
    for edge in edges:
        for a, b in _links(edge):
            weight = 8.0 if a.line and b.line else 2.0 if a.line or b.line else 1.0
            shift = a.port if a.port is not None and not edge.upward and edge.weight else 0.0
            near_below.setdefault(id(a), []).append((b, weight, -shift))
            near_above.setdefault(id(b), []).append((a, weight, shift))
    for layer in layers:
        cursor = 0.0
        for item in layer:
            item.x = cursor + item.width / 2
            cursor += item.width + GAP
        for item in layer:
            item.x -= cursor / 2
    rounds = 24
    for i in range(rounds):
        down = i % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted, weights = [], []
            for item in layer:
                near = near_above.get(id(item), []) if down else near_below.get(id(item), [])
                if i >= rounds - 12 or not near:
                    near = near_above.get(id(item), []) + near_below.get(id(item), [])
                total = sum(weight for _, weight, _ in near)
                goal = sum((n.x + shift) * weight for n, weight, shift in near) / total if near else item.x
                wanted.append(goal)
                weights.append(total or 0.1)
            for item, x in zip(layer, _separate(layer, wanted, weights), strict=True):
                item.x = x
    for _ in range(3):
        for edge in edges:
            if not edge.flat:
                _straighten(edge.chain[1:-1], layers)
    left = min(item.x - item.width / 2 for layer in layers for item in layer)
    for layer in layers:
        for item in layer:
            item.x -= left


def _distance(a: Item, b: Item) -> float:
    """The least distance of the middles of two neighbours."""
    gap = LINE_GAP if a.line and b.line else GAP if not (a.line or b.line) else (GAP + LINE_GAP) / 2
    return (a.width + b.width) / 2 + gap


def _separate(layer: list[Item], wanted: list[float], weights: list[float]) -> list[float]:
    """The nearest positions (weighted least squares) that keep items apart: pooling of adjacent violators."""
    offsets, total = [], 0.0
    for i, item in enumerate(layer):
        total += _distance(layer[i - 1], item) if i else 0.0
        offsets.append(total)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for goal, offset, weight in zip(wanted, offsets, weights, strict=True):
        mean, mass, members = goal - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, other_mass, other_members = pools.pop()
            mean = (mean * mass + other * other_mass) / (mass + other_mass)
            mass, members = mass + other_mass, members + other_members
        pools.append((mean, mass, members))
    means = [mean for mean, _, members in pools for _ in range(members)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _straighten(lines: list[Item], layers: list[list[Item]]) -> None:
    """Moves runs of a passing line to one column, as far as their neighbours let them."""
    run: list[Item] = []
    low, high = float("-inf"), float("inf")
    for item in [*lines, None]:
        if item is not None:
            layer = layers[item.layer]
            left = layer[item.order - 1] if item.order else None
            right = layer[item.order + 1] if item.order + 1 < len(layer) else None
            least = left.x + _distance(left, item) if left is not None else float("-inf")
            most = right.x - _distance(item, right) if right is not None else float("inf")
            if max(low, least) <= min(high, most) + 1e-9:
                run.append(item)
                low, high = max(low, least), min(high, most)
                continue
        if run:
            x = sorted(point.x for point in run)[len(run) // 2]
            for point in run:
                point.x = min(max(x, low), high)
        if item is not None:
            run, low, high = [item], least, most


def _set_rows(layers: list[list[Item]], edges: Sequence[Edge]) -> Arrangement:
    turns = [0.0] * len(layers)  # how far lines go sideways below a layer
    for edge in edges:
        for a, b in _links(edge):
            turns[a.layer] = max(turns[a.layer], abs(a.x - b.x) - max(a.width, b.width) / 2)
    tops, bottoms, cursor = [], [], 0.0
    for i, layer in enumerate(layers):
        height = max((item.height for item in layer), default=0.0)
        if i:
            cursor += min(WIDE_LAYER_GAP, LAYER_GAP + 0.06 * max(turns[i - 1], 0.0))
        tops.append(cursor)
        for item in layer:
            item.y = cursor + (height - item.height) / 2
        cursor += height
        bottoms.append(cursor)
    width = max(item.x + item.width / 2 for layer in layers for item in layer)
    return Arrangement(width, cursor, tops, bottoms)


class Ordered(Protocol):
    """An item with a layer and a place in it."""

    layer: int
    order: int


T = TypeVar("T", bound=Ordered)

_SWEEPS = 24


def order_layers(layers: list[list[T]], links: Sequence[tuple[T, T]]) -> None:
    """Orders the items of each layer, in place; sets their `order`.

    Sweeps down and up, each time by the mean place of the neighbours, then swaps neighbours where that helps; the
    order with the fewest crossings stays.

    Args:
        layers: From the top down.
        links: (upper, lower) of neighbouring layers.
    """
    upper: dict[int, list[T]] = {}
    lower: dict[int, list[T]] = {}
    by_layer: list[list[tuple[T, T]]] = [[] for _ in layers]
    for a, b in links:
        lower.setdefault(id(a), []).append(b)
        upper.setdefault(id(b), []).append(a)
        by_layer[a.layer].append((a, b))
    _renumber(layers)
    best, best_orders = _crossings(by_layer), [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        if best == 0:
            break
        down = sweep % 2 == 0
        near = upper if down else lower
        for layer in layers if down else reversed(layers):
            middle = {
                id(item): sum(n.order for n in near[id(item)]) / len(near[id(item)]) if id(item) in near else item.order
                for item in layer
            }
            layer.sort(key=lambda item: (middle[id(item)], item.order))
            _renumber([layer])
        _swap_neighbours(layers, upper, lower)
        count = _crossings(by_layer)
        if count < best:
            best, best_orders = count, [list(layer) for layer in layers]
    for layer, order in zip(layers, best_orders, strict=True):
        layer[:] = order
    _renumber(layers)


def _renumber(layers: list[list[T]]) -> None:
    for layer in layers:
        for i, item in enumerate(layer):
            item.order = i


def _swap_neighbours(layers: list[list[T]], upper: dict[int, list[T]], lower: dict[int, list[T]]) -> None:
    for layer in layers:
        for i in range(len(layer) - 1):
            a, b = layer[i], layer[i + 1]
            gain = 0
            for near in (upper, lower):
                of_a, of_b = near.get(id(a), ()), near.get(id(b), ())
                gain += sum((x.order > y.order) - (x.order < y.order) for x in of_a for y in of_b)
            if gain > 0:
                layer[i], layer[i + 1] = b, a
                a.order, b.order = i + 1, i


def _crossings(by_layer: list[list[tuple[T, T]]]) -> int:
    count = 0
    for links in by_layer:
        for i, (a, b) in enumerate(links):
            for c, d in links[i + 1 :]:
                count += (a.order - c.order) * (b.order - d.order) < 0
    return count

"""The order of items within the layers of a layout, so that few edges cross."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Ordered(Protocol):
    """What can be ordered: it knows its layer and its place there."""

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

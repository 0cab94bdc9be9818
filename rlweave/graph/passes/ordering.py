"""Which nodes run, and in which order: dead nodes go, and every order gives the results of program order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlweave.graph.differentiation import full_path
from rlweave.graph.ir import Gradients, Graph, Node


def drop_dead_nodes(graph: Graph) -> Graph:
    """Drops dead nodes of a graph and of its bodies, in place."""
    used = {id(value) for value in graph.output_values()}
    kept = []
    for node in reversed(graph.nodes):
        for body in node.bodies.values():
            drop_dead_nodes(body)
        if node.writes or not used.isdisjoint(map(id, node.values())):
            kept.append(node)
            used.update(map(id, node.inputs()))
    graph.nodes = kept[::-1]
    return graph


def dependencies(nodes: Sequence[Node]) -> list[set[int]]:
    """For each node the positions of those that have to run before it: values, and reads and writes of a path.

    A gradient pulls back what the forward nodes have read, so it reads no state of its own.
    """
    maker = {id(value): i for i, node in enumerate(nodes) for value in node.values()}
    before: list[set[int]] = []
    last_write: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    for i, node in enumerate(nodes):
        found = {maker[id(value)] for value in node.inputs() if id(value) in maker}
        if isinstance(node, Gradients):
            position = {id(n): k for k, n in enumerate(nodes)}
            found |= {position[id(n)] for n in full_path(node) if id(n) in position}
        else:
            for path in node.reads:
                if path in last_write:
                    found.add(last_write[path])
            for path in node.writes:
                if path in last_write:
                    found.add(last_write[path])
                found |= readers.get(path, set())
            for path in node.reads:
                readers.setdefault(path, set()).add(i)
            for path in node.writes:
                last_write[path] = i
                readers[path] = set()
        found.discard(i)
        before.append(found)
    return before


def stable_order(before: Sequence[set[int]], prefer: Callable[[int, int | None], Any]) -> list[int]:
    """Topological order; among the ready ones the smallest `prefer(item, last item)`.

    Raises:
        ValueError: There is a cycle.
    """
    waiting = [set(items) for items in before]
    after: list[list[int]] = [[] for _ in before]
    for i, items in enumerate(before):
        for j in items:
            after[j].append(i)
    ready = {i for i, items in enumerate(waiting) if not items}
    order: list[int] = []
    last: int | None = None
    while ready:
        last = min(ready, key=lambda i: prefer(i, last))
        ready.remove(last)
        order.append(last)
        for i in after[last]:
            waiting[i].discard(last)
            if not waiting[i]:
                ready.add(i)
    if len(order) != len(before):
        raise ValueError("cycle")
    return order


def tape_order(nodes: Sequence[Node]) -> list[Node]:
    """The order for a backend with a tape.

    Each gradient comes directly after what it needs (before its variables are overwritten), the nodes that gradients
    go through stand side by side, and what can be computed without the tape comes before them.
    """
    taped_nodes = {id(n) for g in nodes if isinstance(g, Gradients) for n in g.path}
    if not any(isinstance(node, Gradients) for node in nodes):
        return list(nodes)
    taped = [id(node) in taped_nodes for node in nodes]

    def prefer(i: int, last: int | None) -> tuple[bool, bool, int]:
        return not isinstance(nodes[i], Gradients), taped[i] != (last is not None and taped[last]), i

    return [nodes[i] for i in stable_order(dependencies(nodes), prefer)]


def by_place(nodes: Sequence[Node]) -> list[list[Node]]:
    """Cuts the program into runs of one place each, with as few runs as a greedy order finds."""
    if not nodes:
        return []
    places = [place_of(node) for node in nodes]
    if len(set(places)) == 1:
        return [list(nodes)]
    before = dependencies(nodes)

    def prefer(i: int, last: int | None) -> tuple[bool, int]:
        return last is not None and places[i] != places[last], i

    try:
        order = stable_order(_paths_last(nodes, before), prefer)
    except ValueError:  # paths that wait for each other
        order = stable_order(before, prefer)
    runs: list[list[Node]] = []
    for i in order:
        if not runs or place_of(runs[-1][-1]) != places[i]:
            runs.append([])
        runs[-1].append(nodes[i])
    return runs


def _paths_last(nodes: Sequence[Node], before: list[set[int]]) -> list[set[int]]:
    """Dependencies after which a differentiated path starts only when all is there that it needs from other places.

    So the path lies in one run.
    """
    ancestors = _ancestors(before)
    position = {id(node): i for i, node in enumerate(nodes)}
    result = [set(items) for items in before]
    for gradient in (node for node in nodes if isinstance(node, Gradients)):
        path = [position[id(n)] for n in full_path(gradient) if id(n) in position]
        inside = sum(1 << i for i in path)
        needed = 0
        for i in path:
            needed |= ancestors[i]
        earlier = [i for i in _bits(needed & ~inside) if not ancestors[i] & inside]
        for i in path:
            result[i].update(earlier)
    return result


def _ancestors(before: Sequence[set[int]]) -> list[int]:
    """For each node the positions of all that have to run before it, as bits."""
    ancestors: list[int] = []
    for items in before:
        mask = 0
        for j in items:
            mask |= ancestors[j] | (1 << j)
        ancestors.append(mask)
    return ancestors


HOST = "host"


def place_of(node: Node) -> str:
    """The name of the place where a node runs; "device" where no build has named one."""
    return HOST if node.host else node.device or "device"


@dataclass(eq=False)
class Piece:
    """Nodes of differentiated paths that are evaluated together, once, where the forward stands."""

    nodes: list[Node]
    group: int


def pieces(nodes: Sequence[Node]) -> list[Node | Piece]:
    """Groups the differentiated paths of a block into as few contiguous pieces as its dependencies allow."""
    nested = {id(n) for g in nodes if isinstance(g, Gradients) for n in g.path if isinstance(n, Gradients)}
    tops = [node for node in nodes if isinstance(node, Gradients) and id(node) not in nested]
    if not tops:
        return list(nodes)
    group_of: dict[int, int] = {}
    for number, top in enumerate(tops):
        members = {id(n) for n in full_path(top)}
        merged = {group_of[m] for m in members if m in group_of}
        for member in [m for m, g in group_of.items() if g in merged]:
            group_of[member] = number
        for member in members:
            group_of[member] = number
    # a value that a loss is differentiated with respect to ends a piece: what follows on its path begins another one
    cuts: dict[int, set[int]] = {}
    for top in tops:
        for n in full_path(top) if top.by_values is not None else ():
            cuts.setdefault(id(n), set()).update(id(value) for value in top.by_values or ())
    before = dependencies(nodes)
    made = _cut(nodes, before, group_of, cuts)
    for pieces_made in (made, [[i] for group in made for i in group]):
        try:
            return _arrange(nodes, before, pieces_made, group_of)
        except ValueError:
            continue
    raise AssertionError("single nodes in program order cannot form a cycle")


def _cut(
    nodes: Sequence[Node], before: list[set[int]], group_of: dict[int, int], cuts: dict[int, set[int]]
) -> list[list[int]]:
    ancestors = _ancestors(before)
    of_group: dict[int, list[_Cut]] = {}
    made: list[_Cut] = []
    position = {id(node): i for i, node in enumerate(nodes)}
    for i, node in enumerate(nodes):
        if id(node) not in group_of:
            continue
        found = of_group.setdefault(group_of[id(node)], [])
        candidates = found[-1:]
        if isinstance(node, Gradients):
            # a nested gradient is taken where its own forward nodes stand
            forward = [*node.path, node.loss.node]
            path = sum({1 << position[id(n)] for n in forward if id(n) in position})
            candidates = [piece for piece in found if path & piece.inside][-1:]
        for piece in candidates:
            between = _bits(ancestors[i] & ~piece.inside)
            ends = cuts.get(id(node), set())
            uses_cut = any(id(value) in ends and id(value) in piece.made for value in node.inputs())
            if not uses_cut and not any(ancestors[x] & piece.inside for x in between):
                piece.add(i, node)
                break
        else:
            found.append(_Cut())
            found[-1].add(i, node)
            made.append(found[-1])
    return [piece.members for piece in made]


class _Cut:
    """A piece while it grows: positions of its nodes, the same as bits, and identities of the values they make."""

    __slots__ = ("inside", "made", "members")

    def __init__(self) -> None:
        self.members: list[int] = []
        self.inside = 0
        self.made: set[int] = set()

    def add(self, position: int, node: Node) -> None:
        self.members.append(position)
        self.inside |= 1 << position
        self.made.update(id(value) for value in node.values())


def _bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _arrange(
    nodes: Sequence[Node], before: list[set[int]], made: list[list[int]], group_of: dict[int, int]
) -> list[Node | Piece]:
    unit_of: dict[int, int] = {}
    units: list[list[int]] = []
    in_piece = {i: piece for piece in made for i in piece}
    for i in range(len(nodes)):
        if i in unit_of:
            continue
        members = in_piece.get(i, [i])
        for j in members:
            unit_of[j] = len(units)
        units.append(members)
    unit_before = [{unit_of[j] for i in unit for j in before[i]} - {k} for k, unit in enumerate(units)]
    order = stable_order(unit_before, lambda k, last: units[k][-1])
    result: list[Node | Piece] = []
    for k in order:
        first = nodes[units[k][0]]
        if id(first) in group_of:
            result.append(Piece([nodes[i] for i in units[k]], group_of[id(first)]))
        else:
            result.append(first)
    return result

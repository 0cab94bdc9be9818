"""The partition pass: the program order is cut into runs of one place each, with transfers as nodes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.backends import Backend
from rlweave.errors import BuildError
from rlweave.graph.differentiation import full_path
from rlweave.graph.ir import RANDOM, RANDOM_PATHS, Gradients, Graph, Node, Structure, Transfer, Value
from rlweave.graph.passes.ordering import HOST, by_place, place_of
from rlweave.graph.store import Store
from rlweave.tree import leaves_of, tree_map

#: The place of an input of an API method before it is moved.
CALLER = "caller"


def partition(graph: Graph, store: Store) -> Graph:
    """Orders the nodes of a placed graph into runs and puts `transfer` nodes before each, in place.

    A transfer node takes what a run needs of one node (or input) that is elsewhere, and is named by both places. The
    random state is one entry of the store; where several devices draw, it travels, so that numbers do not depend on
    placement.

    Args:
        graph: A graph whose nodes are placed: on the host, on a device by name, or on the one device there is.
        store: Knows the places of the executor.

    Raises:
        BuildError: What is differentiated lies in several runs.
    """
    if store.backend.on_host:
        return graph
    runs = by_place(graph.nodes)
    _check_gradients(runs)
    cut = _Partition(graph, store)
    for run in runs:
        cut.add(run)
    graph.nodes = cut.nodes
    return graph


def runs_of(graph: Graph) -> list[list[Node]]:
    """The runs of a partitioned graph; a transfer stands alone."""
    runs: list[list[Node]] = []
    last = ""
    for node in graph.nodes:
        place = "" if isinstance(node, Transfer) else place_of(node)
        if not place or place != last:
            runs.append([])
        runs[-1].append(node)
        last = place
    return runs


def _check_gradients(runs: Sequence[Sequence[Node]]) -> None:
    for run in runs:
        inside = {id(n) for n in run}
        for node in run:
            outside = [n for n in full_path(node) if id(n) not in inside] if isinstance(node, Gradients) else []
            if outside:
                raise BuildError(
                    "a gradient goes across a host node, or a node on another device",
                    where=node.label,
                    received=f"{outside[0].label} runs before such a node that the loss depends on",
                    fix="call that graph function before the forward pass, or after the gradient",
                )


class _Partition:
    def __init__(self, graph: Graph, store: Store) -> None:
        self.graph, self.store = graph, store
        self.takes_numpy = store.backend.immutable
        self.home = CALLER if self.takes_numpy else store.input_place
        self.nodes: list[Node] = []
        self.moved: dict[tuple[int, str], Value] = {}
        self.random_place = ""

    def add(self, run: Sequence[Node]) -> None:
        """A run, after the transfers that it needs."""
        place = place_of(run[0])
        inside = {id(v) for n in run for v in n.values()}
        needed = {id(v): v for n in run for v in n.inputs() if id(v) not in inside}
        committed = any(path not in RANDOM_PATHS for n in run for path in (*n.reads, *n.writes))
        sources: dict[Any, list[Value]] = {}
        for value in needed.values():
            source = self.home if value.node is None else place_of(value.node)
            if self._stays(source, place, committed) or (id(value), place) in self.moved:
                continue
            sources.setdefault((value.name if value.node is None else id(value.node), source), []).append(value)
        for (_, source), values in sources.items():
            self._transfer(values, source, place)
        if place != HOST and self.store.random_travels and any(RANDOM in n.reads for n in run):
            if place != self.random_place:
                label = f"random.{self.random_place or 'anywhere'}_to_{place}"
                source = self.random_place or "anywhere"
                state = (RANDOM,)
                travel = Transfer(label=label, reads=state, writes=state, device=place, source=source, target=place)
                self.nodes.append(travel)
            self.random_place = place
        here = {key: value for (key, to), value in self.moved.items() if to == place}
        if here:
            for node in run:
                replace_inputs(node, here)
        self.nodes.extend(run)

    def _stays(self, source: str, place: str, committed: bool) -> bool:
        """Whether a run at a place takes a value from a source without a transfer."""
        if source == place:
            return True
        if not self.takes_numpy or source not in (CALLER, HOST):
            return False
        if place == HOST:
            return True  # NumPy's arrays, or a caller's arrays on a device, which NumPy can read
        # a compiled run with variables takes the caller's arrays to where these are, if that is the only device
        return self.store.default_device is None or (committed and len(self.store.device_places) == 1)

    def _transfer(self, values: Sequence[Value], source: str, place: str) -> None:
        first = values[0]
        whole: Structure = self.graph.inputs[first.name] if first.node is None else first.node.result
        moving: Structure = whole if len(list(leaves_of(whole, Value))) == len(values) else tuple(values)
        of = first.name if first.node is None else first.node.label
        label = f"{of}.{source}_to_{place}"
        node = Transfer(
            label=label,
            args=(moving,),
            host=place == HOST,
            device=place,
            source=source,
            target=place,
            of=of,
        )

        def arrived(leaf: Any) -> Any:
            if not isinstance(leaf, Value):
                return leaf
            self.moved[id(leaf), place] = value = Value(leaf.space, node, leaf.key, leaf.name)
            return value

        node.result = tree_map(arrived, moving)
        self.nodes.append(node)


def replace_inputs(node: Node, values: dict[int, Value]) -> None:
    """Makes a node (and its bodies) use other values; keys are ids of the ones before."""

    def chosen(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    node.replace_inputs(chosen)
    for body in node.bodies.values():
        for inner in body.nodes:
            replace_inputs(inner, values)
        body.outputs = tree_map(chosen, body.outputs)


def random_travels(backend: Backend, device_places: Sequence[str]) -> bool:
    """Whether the random state has to be where a run is that draws; else draws are made on the CPU, and moved."""
    if backend.creates_on_cpu or not device_places:
        return False
    return len(device_places) > 1 or device_places[0] != backend.device_names()[0]

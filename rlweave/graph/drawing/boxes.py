"""Nested boxes: which boxes of which component are linked, and where they all go."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlweave.graph.drawing.dataflow import Flow, Picture
from rlweave.graph.drawing.layered import Arrangement, Edge, Item, arrange
from rlweave.graph.drawing.parts import Part, describe_variables
from rlweave.graph.drawing.typography import mono_width, sans_width

PADDING, HEADER, INDENT = 14.0, 40.0, 13.0
LABEL_SIZE, LABEL_LINES = 10.0, 4
#: Sizes of scopes, classes and small print: of a container, of a component without anything inside.
CONTAINER_SIZES, LEAF_SIZES = (13.0, 11.0, 10.0), (12.0, 10.0, 9.5)
METHOD_SIZE, FUNCTION_SIZE = 11.0, 10.0


@dataclass(eq=False)
class Link:
    """All flows of one kind between two boxes of one container.

    Args:
        target: Name of the box that it goes to; "out" leaves the container.
        kind: "data", "gradient" or "state".
        labels: What flows.
        methods: In which API methods.
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
        name: The path of a component, "path#function", "in:method" or "out:method".
        title: The text of a method or function.
        part: The component.
        small: Lines of small print below a component's name.
        inside: Boxes of a container, with their places.
        links: Between those boxes.
        ports: "in" and "out": where flows cross the border of a container.
        arrangement: The layout of what is inside.
        left: Set by `place`.
        top: Set by `place`.
    """

    name: str
    title: str = ""
    part: Part | None = None
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


def name_width(part: Part, sizes: tuple[float, float, float]) -> float:
    """Width of scope and class on one line."""
    return class_offset(part, sizes) + sans_width(part.class_name, sizes[1])


def class_offset(part: Part, sizes: tuple[float, float, float]) -> float:
    """Where the class begins, behind the scope."""
    return sans_width(part.scope, sizes[0], bold=True) + 8


def lay_out(picture: Picture) -> Box:
    """The box of the root with everything in it laid out."""
    return _Layout(picture).component(picture.root)


class _Layout:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.links: dict[str, dict[tuple[str, str, str], Link]] = {}
        for flow in picture.flows:
            self._route(flow)

    # -- flows become links of nested boxes ----------------------------------------------------------------------

    def _holders(self, endpoint: str) -> list[str]:
        """The boxes around an endpoint from the root down, the endpoint last."""
        if endpoint.startswith(("in:", "out:")):
            return [self.picture.root, endpoint]
        names = endpoint.partition("#")[0].split("/")
        paths = ["/".join(names[: i + 1]) for i in range(len(names))]
        return [*paths, endpoint] if "#" in endpoint else paths

    def _route(self, flow: Flow) -> None:
        source, target = self._holders(flow.source), self._holders(flow.target)
        level = next((i for i, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), None)
        if level is None:
            return  # one holds the other
        self._link(source[level - 1], source[level], target[level], flow, flow.labels)
        if flow.kind != "state":
            for outer, inner in zip(source[level:], source[level + 1 :], strict=False):
                self._link(outer, inner, "out", flow, [])
            for outer, inner in zip(target[level:], target[level + 1 :], strict=False):
                self._link(outer, "in", inner, flow, [])

    def _link(self, container: str, source: str, target: str, flow: Flow, labels: list[str]) -> None:
        kind = flow.kind if target != "out" and source != "in" else "data"
        link = self.links.setdefault(container, {}).setdefault((source, target, kind), Link(target, kind))
        link.labels += [label for label in labels if label not in link.labels]
        link.methods += [method for method in flow.methods if method not in link.methods]

    # -- boxes ---------------------------------------------------------------------------------------------------

    def component(self, path: str) -> Box:
        """The box of a component with everything in it laid out."""
        part = self.picture.parts[path]
        is_root = path == self.picture.root
        uses = [f"uses {other.removeprefix(self.picture.root + '/')}" for other in part.uses]
        box = Box(path, part=part, small=[text for text in (describe_variables(part), *uses) if text])
        if part.children or is_root:
            box.small = [" · ".join(box.small)]
            sizes = CONTAINER_SIZES
            self._fill(box, part, is_root)
        else:
            sizes = LEAF_SIZES
            box.height = 24.0 + 13.0 * len(box.small)
        texts = [name_width(part, sizes), *(sans_width(text, sizes[2]) for text in box.small)]
        box.width = max(box.width, max(texts) + 2 * INDENT)
        return box

    def _fill(self, box: Box, part: Part, is_root: bool) -> None:
        links = self.links.get(part.path, {})
        inside: list[tuple[Box, str]] = []
        if is_root:
            inside += [(_method(f"in:{name}", title), "first") for name, title in self.picture.methods.items()]
        inside += [(_function(part, name), "") for name in part.functions]
        inside += [(self.component(child), "") for child in part.children]
        if is_root:
            ends = {target for _, target, _ in links}
            names = [name for name in self.picture.methods if f"out:{name}" in ends]
            inside += [(_method(f"out:{name}", f"{name} returns"), "last") for name in names]
        items: dict[str, Item] = {}
        for inner, rank in inside:
            item = items[inner.name] = Item(inner.name, inner.width, inner.height, rank)
            if "out" in inner.ports:
                item.port = inner.inner_left + inner.ports["out"].x - inner.width / 2
            box.inside.append((inner, item))
        for name, rank in (("in", "first"), ("out", "last")):
            if any(name in key[:2] for key in links):
                box.ports[name] = items[name] = Item(name, 0.0, 0.0, rank, line=True)
        for (source, target, kind), link in links.items():
            weight = {"data": 2.0 + len(link.labels), "gradient": 2.0, "state": 0.0}[kind]
            link.edge = Edge(items[source], items[target], link.label_extent, weight)
            box.links.append(link)
        box.arrangement = arrange(list(items.values()), [link.edge for link in box.links])
        box.width = box.arrangement.width + 2 * PADDING
        box.height = box.inner_top + box.arrangement.height + (0.0 if "out" in box.ports else PADDING)


def _method(name: str, title: str) -> Box:
    return Box(name, title, width=mono_width(title, METHOD_SIZE) + 26, height=24.0)


def _function(part: Part, name: str) -> Box:
    return Box(f"{part.path}#{name}", name, part, mono_width(name, FUNCTION_SIZE) + 32, 22.0)


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

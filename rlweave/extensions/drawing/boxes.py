"""The boxes of a component graph: which boxes of which component are linked, and where they all go."""

from __future__ import annotations

from rlweave.extensions.drawing.dataflow import Flow, Picture
from rlweave.extensions.drawing.parts import Part, describe_variables
from rlweave.view.layout.boxes import PADDING, Box, Link, mono_width, sans_width
from rlweave.view.layout.layered import Edge, Item, arrange

INDENT = 13.0
#: Sizes of scopes, classes and small print: of a container, of a component without anything inside.
CONTAINER_SIZES, LEAF_SIZES = (13.0, 11.0, 10.0), (12.0, 10.0, 9.5)
METHOD_SIZE, FUNCTION_SIZE = 11.0, 10.0


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

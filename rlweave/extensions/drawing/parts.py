"""The components of a built graph as pictures show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlweave.extensions.drawing.captions import plural, short_number, short_space
from rlweave.graph.composition import ComponentBase
from rlweave.graph.executor import GraphExecutor


@dataclass
class Part:
    """One component as a picture shows it.

    Args:
        path: Its global path.
        scope: Its name within the owner.
        class_name: Its class.
        children: Paths of the components that it owns and the picture shows.
        place: "host", or the device it runs on.
        variables: Number of its variables and of those below.
        sizes: Their numbers by kind: "trainable", "frozen", "state".
        functions: Its graph functions that run, in program order.
        uses: Paths of components that it refers to and does not own.
        details: One line per variable of its own.
    """

    path: str
    scope: str
    class_name: str
    children: list[str]
    place: str
    variables: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What its variables are: "trainable", "frozen" or "state"; "" without variables."""
        return next((kind for kind in ("trainable", "frozen", "state") if kind in self.sizes), "")


def read_parts(
    executor: GraphExecutor, functions: Mapping[str, list[str]], places: Mapping[str, list[str]]
) -> dict[str, Part]:
    """All parts of an executor by path, owners first.

    Args:
        executor: A built graph.
        functions: The graph functions that run, by component path.
        places: Where they run, by component path: "host", a device, "" for the backend's own.
    """
    session = executor.session
    parts: dict[str, Part] = {}
    for component in executor.root.tree():
        if not session.knows(component):
            continue
        path = component.path
        children = component.sub_components()
        referred = [c.path for c in component._referenced() if c not in children and session.knows(c)]
        part = Part(path, component.scope, type(component).__name__, [c.path for c in children], "", uses=referred)
        part.functions = functions.get(path, [])
        part.place = _place(executor, component, places.get(path, []))
        for below in component.tree():
            for variable in session.variables_of(below):
                kind = "state"
                if variable.trainable:
                    kind = "trainable" if below.trainable else "frozen"
                part.variables += 1
                part.sizes[kind] = part.sizes.get(kind, 0) + int(np.prod(variable.shape))
                if below is component:
                    part.details.append(f"{variable.name}: {short_space(variable.space)}")
        parts[path] = part
    for part in reversed(list(parts.values())):  # a component that computes nothing is where its parts are
        inside = {parts[child].place for child in part.children}
        if not part.place:
            part.place = inside.pop() if len(inside) == 1 else executor.root.device or executor.backend.name
    return parts


def _place(executor: GraphExecutor, component: ComponentBase, seen: list[str]) -> str:
    device = executor.session.device_of(component)
    if device is not None:
        return device
    found = set(seen)
    paths = [variable.path for variable in executor.session.variables_of(component)]
    found |= {"host" if path in executor.store.host_paths else "" for path in paths if path in executor.store.cells}
    if found == {"host"}:
        return "host"
    if not found and component.sub_components():
        return ""
    return executor.backend.name


def keep_used(parts: Mapping[str, Part], paths: Iterable[str], root: str) -> dict[str, Part]:
    """The parts with graph functions that run, those at some paths, and all around them."""
    used = {root}
    for path in [*paths, *(path for path, part in parts.items() if part.functions)]:
        names = path.split("/")
        used.update("/".join(names[: i + 1]) for i in range(len(names)))
    kept = {path: part for path, part in parts.items() if path in used}
    for part in kept.values():
        part.children = [child for child in part.children if child in kept]
    return kept


def describe_variables(part: Part) -> str:
    """How many variables with how many numbers a component has; "" without any."""
    if not part.variables:
        return ""
    nouns: dict[str, str] = {"trainable": "parameter", "state": "number"}
    kinds: list[str] = [k for k in ("trainable", "frozen") if k in part.sizes] or ["state"]
    sizes = [
        plural(part.sizes[kind], nouns[kind]) if kind in nouns else f"{short_number(part.sizes[kind])} {kind}"
        for kind in kinds
    ]
    return " · ".join([plural(part.variables, "variable"), *sizes])

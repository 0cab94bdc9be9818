"""What a picture of a component graph shows: its parts, and what flows between them.

The nodes of a traced graph are calls of graph functions, deep inside the composition. Here they become flows between
endpoints: a component; a graph function of a component that has components inside ("path#function"); the entry and
the result of an API method of the root ("in:name", "out:name"). Arithmetic on values in API methods is no component, so
what flows into it is taken to flow on to its users.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rlweave.errors import ExecutionError, nearest
from rlweave.extensions.drawing.captions import EMPTY_NAMES, label_of, plural
from rlweave.extensions.drawing.parts import Part, keep_used, read_parts
from rlweave.graph.composition import ComponentBase
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import Call, Gradients, Graph, Node, Structure, Transfer, Value, unique
from rlweave.graph.values import variables_of_arguments
from rlweave.tree import flatten_tree, leaves_of


@dataclass
class Flow:
    """What flows from one endpoint to another.

    Args:
        source: Endpoint.
        target: Endpoint.
        kind: "data"; "gradient"; "state" (variables of the target are written, or those of the source read).
        labels: One short text per array; for gradients and state one in all.
        methods: API methods of the root in which it flows.
    """

    source: str
    target: str
    kind: str
    labels: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)


@dataclass
class Picture:
    """All that is drawn.

    Args:
        root: Path of the root.
        parts: Components by path, owners first.
        methods: Titles of the API methods that are shown, by name.
        flows: What flows in them.
        declared: All API methods of the graph, shown or not.
    """

    root: str
    parts: dict[str, Part]
    methods: dict[str, str]
    flows: list[Flow]
    declared: list[str]


class _Source(NamedTuple):
    endpoint: str
    name: str = ""
    gradient: bool = False


def make_picture(executor: GraphExecutor, method: str | None = None) -> Picture:
    """Reads a picture out of the traced graphs of an executor.

    Args:
        executor: A built graph.
        method: Only this API method and the components that it uses; all by default.

    Raises:
        ExecutionError: There is no such API method, or it has not been traced yet.
    """
    declared = [name for name in executor._methods if name in executor.__dict__]
    if method is not None and method not in declared:
        raise ExecutionError(
            f"the graph has no API method {method!r}", where=executor.root.path, fix=nearest(method, declared)
        )
    variants: dict[str, Graph] = {}
    for (name, _), graph in executor.graphs.items():
        variants.setdefault(name, graph)
    if method is not None and method not in variants:
        raise ExecutionError(
            f"API method {method!r} has not been traced yet",
            where=executor.root.path,
            received="static arguments without defaults",
            fix=f'call it once, or build with static={{"{method}": {{...}}}}',
        )
    names = [method] if method is not None else declared
    reader = _FlowReader(executor)
    for name in names:
        if name in variants:
            reader.read(name, variants[name])
    parts = read_parts(executor, reader.functions, reader.places)
    if method is not None:
        ends = [end for flow in reader.flows.values() for end in (flow.source, flow.target)]
        paths = [end.partition("#")[0] for end in ends if not end.startswith(("in:", "out:"))]
        parts = keep_used(parts, paths, executor.root.path)
    flows = [flow for flow in reader.flows.values() if _shown(flow.source, parts) and _shown(flow.target, parts)]
    titles = {name: _title(name, variants.get(name)) for name in names}
    return Picture(executor.root.path, parts, titles, flows, declared)


def _shown(endpoint: str, parts: dict[str, Part]) -> bool:
    return endpoint.startswith(("in:", "out:")) or endpoint.partition("#")[0] in parts


def _title(name: str, graph: Graph | None) -> str:
    if graph is None:
        return f"{name}(…)"
    given = [f"{key}={value}" for key, value in graph.static.items()]
    return f"{name}({', '.join([*graph.parameters, *given])})"


class _FlowReader:
    """Collects flows, and which functions of which component run where."""

    def __init__(self, executor: GraphExecutor) -> None:
        self.root = executor.root
        self.flows: dict[tuple[str, str, str], Flow] = {}
        self.functions: dict[str, list[str]] = {}
        self.places: dict[str, list[str]] = {}
        self.owners: dict[str, ComponentBase] = {v.path: v.owner for v in executor.session.all_variables()}
        self.with_children = {c.path for c in executor.session.components if c is self.root or c.sub_components()}
        self.method = ""
        self._sources: dict[int, list[_Source]] = {}
        self._counts: dict[tuple[str, str, str], dict[int, None]] = {}

    def read(self, method: str, graph: Graph) -> None:
        """Adds the flows of an API method."""
        self.method, self._sources, self._counts = method, {}, {}
        entry, end = f"in:{method}", f"out:{method}"
        for parameter, structure in graph.inputs.items():
            for path, value in flatten_tree(structure).items():
                if isinstance(value, Value):
                    name = path.rsplit("/", 1)[-1]
                    self._sources[id(value)] = [_Source(entry, parameter if not name or name.isdecimal() else name)]
        starts: list[str] = []
        self._visit(graph, starts)
        for path, value in flatten_tree(graph.outputs).items():
            if isinstance(value, Value):
                name = path.rsplit("/", 1)[-1]
                self._consume(value, end, "" if name.isdecimal() else name)
        if not any(flow.source == entry for flow in self.flows.values()):
            for endpoint in unique(starts):
                self._add(entry, endpoint, "data")  # an API method without inputs still starts somewhere

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _visit(self, graph: Graph, starts: list[str]) -> None:
        for node in graph.nodes:
            if node.bodies:
                self._bodies(node, starts)
            elif isinstance(node, Transfer):
                self._transfer(node)
            elif isinstance(node, Gradients):
                found = [s._replace(gradient=True) for s in self._of(leaves_of(node.args[0], Value))]
                self._produce(node, found)
            elif isinstance(node, Call) and node.component is not None and not node.plain:
                self._call(node, node.component, starts)
            elif isinstance(node, Call):
                self._between_components(node, starts)

    def _call(self, node: Call, component: ComponentBase, starts: list[str]) -> None:
        path = component.path
        name = node.label.rsplit(".", 1)[-1].lstrip("_")
        endpoint = f"{path}#{name}" if path in self.with_children else path
        if name not in self.functions.setdefault(path, []):
            self.functions[path].append(name)
        self.places.setdefault(path, []).append("host" if node.host else node.device or "")
        reached = False
        for parameter, value in _arguments(node):
            reached = self._consume(value, endpoint, parameter) or reached
        for value in node.substitution.values():
            self._consume(value, endpoint, "substituted")
        if not reached:
            starts.append(endpoint)
        self._state_flows(node, endpoint, path)
        for value in node.values():
            self._sources[id(value)] = [_Source(endpoint, _key_name(value.key))]

    def _state_flows(self, node: Node, endpoint: str, path: str) -> None:
        """Flows between a graph function and variables of other components that were passed to it."""
        written = self._of_others(node.writes, path)
        read = [variable for variable in self._of_others(node.reads, path) if variable not in written]
        for owner, count in self._siblings(written, path).items():
            self._add(endpoint, owner, "state", f"updates {plural(count, 'variable')}")
        for owner, count in self._siblings(read, path).items():
            self._add(owner, endpoint, "state", f"reads {plural(count, 'variable')}")

    def _between_components(self, node: Call, starts: list[str]) -> None:
        """Arithmetic in an API method, a read of variables, a synchronization of two components."""
        if node.component is not None and node.writes:
            path = node.component.path
            starts.append(path)
            for owner, count in self._siblings(self._of_others(node.reads, path), path).items():
                self._add(owner, path, "state", f"syncs {plural(count, 'variable')}")
            return
        found = self._of(node.inputs())
        owners = unique(self.owners[v.path].path for v in variables_of_arguments(node.args) if v.path in self.owners)
        if owners:
            found.append(_Source(_common(owners), "variables"))
        self._produce(node, found)

    def _transfer(self, node: Transfer) -> None:
        """What arrives comes from where it was made; between two devices its name says so."""
        source, target = node.source, node.target
        for given, taken in zip(leaves_of(node.args, Value), node.values(), strict=False):
            found = self._of([given])
            if source not in ("caller", "host", "device") and target not in ("host", "device"):
                found = [s._replace(name=f"{s.name}, {source} to {target},".lstrip(", ")) for s in found]
            self._sources[id(taken)] = found

    def _bodies(self, node: Node, starts: list[str]) -> None:
        for body in node.bodies.values():
            for argument, parameter in zip(node.args, body.parameters, strict=False):
                self._hand_on(argument, body.inputs[parameter])
            self._visit(body, starts)
        for name, body in node.bodies.items():
            if name != "test":
                self._hand_on(body.outputs, node.result)

    def _hand_on(self, given: Structure, taken: Structure) -> None:
        flat = flatten_tree(given)
        for path, value in flatten_tree(taken).items():
            if isinstance(value, Value) and isinstance(flat.get(path), Value):
                before = self._sources.get(id(value), [])
                name = path.rsplit("/", 1)[-1]
                found = [s._replace(name=s.name or ("" if name.isdecimal() else name)) for s in self._of([flat[path]])]
                self._sources[id(value)] = list(unique([*before, *found]))

    # -- sources and flows ---------------------------------------------------------------------------------------

    def _of(self, values: Iterable[Value]) -> list[_Source]:
        return list(unique(source for value in values for source in self._sources.get(id(value), ())))

    def _produce(self, node: Node, found: list[_Source]) -> None:
        sources = [s._replace(name="") for s in found]
        for value in node.values():
            self._sources[id(value)] = list(unique(sources))

    def _consume(self, value: Value, target: str, parameter: str) -> bool:
        sources = self._sources.get(id(value), [])
        for source in sources:
            if source.endpoint == target:
                continue
            if source.gradient:
                counted = self._counts.setdefault((source.endpoint, target, "gradient"), {})
                counted[id(value)] = None
                self._add(source.endpoint, target, "gradient")
                flow = self.flows[source.endpoint, target, "gradient"]
                flow.labels = [plural(len(counted), "gradient")]
            else:
                name = source.name if source.name not in EMPTY_NAMES else parameter
                self._add(source.endpoint, target, "data", label_of(value.space, name))
        return bool(sources)

    def _add(self, source: str, target: str, kind: str, label: str = "") -> None:
        flow = self.flows.setdefault((source, target, kind), Flow(source, target, kind))
        if label and label not in flow.labels:
            flow.labels.append(label)
        if self.method not in flow.methods:
            flow.methods.append(self.method)

    def _of_others(self, variables: Iterable[str], path: str) -> list[str]:
        """Those variables that belong neither to the component at `path` nor to one inside."""
        return [v for v in variables if v in self.owners and not _below(self.owners[v].path, path)]

    def _siblings(self, paths: Iterable[str], here: str) -> dict[str, int]:
        """Counts variables by the widest component around each that does not hold `here`."""
        counts: dict[str, int] = {}
        for path in paths:
            owner = self.owners[path].path
            parts = owner.split("/")
            around = ["/".join(parts[: i + 1]) for i in range(len(parts))]
            widest = next((w for w in around if not _below(here, w)), owner)
            counts[widest] = counts.get(widest, 0) + 1
        return counts


def _arguments(node: Call) -> Iterator[tuple[str, Value]]:
    """(name, value) of each value that a call passes: the last key in a container, or the parameter."""
    names = _parameter_names(node.function)
    positional = [(names[i] if i < len(names) else "", a) for i, a in enumerate(node.args)]
    for parameter, argument in [*positional, *node.kwargs.items()]:
        for path, leaf in flatten_tree(argument).items():
            if isinstance(leaf, Value):
                name = path.rsplit("/", 1)[-1]
                yield parameter if not name or name.isdecimal() else name, leaf


@lru_cache(maxsize=1024)
def _parameter_names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)[1:]


def _key_name(key: tuple[Any, ...]) -> str:
    return next((str(k) for k in reversed(key) if isinstance(k, str)), "")


def _below(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(f"{ancestor}/")


def _common(paths: Iterable[str]) -> str:
    """The path of the smallest component that holds all of these."""
    split = [path.split("/") for path in paths]
    shared = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)

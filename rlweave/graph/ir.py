"""The graph IR: values, nodes and graphs.

A `Graph` is the list of nodes of one API method of a root component, in program order. A node is one call of a
graph function, or one of the structured kinds (gradient, scan, cond, while, vmap). Results are nested dicts, tuples
and lists whose leaves are `Value` objects; state is named by variable paths in `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from rlweave.backends.base import operator_for, user_location
from rlweave.errors import BuildError
from rlweave.graph.no_array import Symbolic
from rlweave.spaces import Box

if TYPE_CHECKING:
    from rlweave.graph.composition import ComponentBase

#: Anything nested in dicts, tuples and lists.
Structure = Any

RANDOM = "random"
HOST_RANDOM = "random/host"
#: Entries of the store that are random state and no variables.
RANDOM_PATHS = frozenset({RANDOM, HOST_RANDOM})


def _symbolic(action: str, fix: str) -> Callable[..., Any]:
    def refuse(self: Value, *args: Any, **kwargs: Any) -> Any:
        raise BuildError(
            f"{action} of a symbolic value while a graph is being traced",
            where=f"result of {self.node.label}" if self.node else "an API input",
            received=f"Value of {self.space!r}",
            fix=fix,
        )

    return refuse


def refuse_function(function: str, received: str) -> NoReturn:
    """The error for a function of NumPy or another framework that got a symbolic value."""
    raise BuildError(
        f"{function} got a symbolic value while a graph is being traced",
        where=user_location(),
        received=f"Value of {received}",
        fix=f"{operator_for(function)}; what needs NumPy itself is @graph_fn(host=True)",
    )


class UnknownAttributeError(BuildError, AttributeError):
    """A symbolic value was asked for something that only arrays have."""


class Value(Symbolic):
    """A symbolic array: its space and the node that makes it (None for an input of the graph)."""

    __slots__ = ("array", "key", "name", "node", "space")

    def __init__(self, space: Box, node: Node | None, key: tuple[Any, ...] = (), name: str = "") -> None:
        self.space, self.node, self.key, self.name = space, node, key, name
        self.array: Any = None  # only in eager mode: what the value is right now

    def refuse_function(self, function: str) -> NoReturn:
        refuse_function(function, repr(self.space))

    def __repr__(self) -> str:
        return f"Value({self.space!r}, from {self.node.label if self.node else self.name})"

    _branch = "make it static with @api(static=(...)), or use graph.cond, graph.scan or ops.where"
    __bool__ = _symbolic("a branch on the truth", _branch)
    __int__ = __index__ = _symbolic("int()", _branch)
    __float__ = _symbolic("float()", _branch)
    __len__ = _symbolic("len()", "use .space.shape for feature sizes, graph.scan to loop over time")
    __iter__ = _symbolic("iteration", "use graph.scan to loop, or a graph function to take the array apart")
    __format__ = _symbolic("formatting", "return the value from the API method, or use graph.metric to report it")
    __contains__ = _symbolic("`in`", _branch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownAttributeError(
            f"a symbolic value has no attribute {name!r}",
            where=f"result of {self.node.label}" if self.node else "an API input",
            received=f"Value of {self.space!r}",
            fix="use .space for shape and dtype; take the array apart in a graph function",
        )


class Unknown(Symbolic):
    """The result of a graph function whose component is not complete yet. It only flows on."""

    __slots__ = ("source",)

    def __init__(self, source: str = "") -> None:
        self.source = source

    def refuse_function(self, function: str) -> NoReturn:
        refuse_function(function, f"what {self.source} returns")

    def __repr__(self) -> str:
        return f"Unknown(from {self.source})"

    def __getitem__(self, key: Any) -> Unknown:
        return Unknown(self.source)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._not_ready()

    def _not_ready(self, *args: Any, **kwargs: Any) -> Any:
        raise NotReady(f"a value of unknown structure from {self.source}")

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __contains__ = _not_ready
    __format__ = _not_ready


class NotReady(Exception):  # noqa: N818 - control flow of the build, not an error
    """The API method being traced needs something that a later round of the build will know."""


@dataclass(eq=False, slots=True)
class Node:
    """One step of a graph.

    Args:
        kind: "call", "gradient", "scan", "cond", "while", "vmap", or what passes make: "transfer".
        label: Where it comes from, for people: `dqn/policy/dense-0.call`.
        component: The component whose graph function is called.
        function: The undecorated graph function, or a plain callable for "op" nodes.
        args: Positional arguments, nested, with values, constants and variable collections as leaves.
        kwargs: Keyword arguments, likewise.
        reads: Paths of the variables that it reads.
        writes: Paths of the variables that it writes.
        host: Runs in NumPy on the host.
        differentiable: Gradients may flow through it.
        substitution: Variables read from values instead of the store.
        bodies: Sub-graphs of structured nodes.
        extra: What a structured kind needs besides.
        aliases: Result leaves that may share memory with a variable or an argument.
    """

    kind: str
    label: str
    component: ComponentBase | None = None
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    host: bool = False
    differentiable: bool = True
    substitution: dict[str, Value] = field(default_factory=dict)
    bodies: dict[str, Graph] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    result: Structure = None
    aliases: bool = False
    device: str | None = None
    _used: tuple[Value, ...] | None = field(default=None, init=False, repr=False)
    _made: tuple[Value, ...] | None = field(default=None, init=False, repr=False)

    def inputs(self) -> tuple[Value, ...]:
        """All values that it uses, those that its bodies take from outside included; of an emitted node."""
        # every pass asks for them, and arguments stay what they are; bodies lose their dead nodes later
        if self._used is None:
            found: list[Value] = []
            _collect(self.args, Value, found)
            _collect(self.kwargs, Value, found)
            self._used = (*found, *self.substitution.values())
        if not self.bodies:
            return self._used
        return (*self._used, *(value for body in self.bodies.values() for value in body.free_values()))

    def values(self) -> tuple[Value, ...]:
        """The leaves of its result; of an emitted node."""
        if self._made is None:
            self._made = tuple(leaves_of(self.result, Value))
        return self._made


@dataclass(eq=False)
class Metric:
    """A number reported from inside a graph by `graph.metric`."""

    name: str
    value: Value
    reduce: str


@dataclass(eq=False)
class Graph:
    """The nodes of one API method (or of a body) in program order.

    Args:
        name: Name of the API method or body.
        parameters: Parameter names in order.
        inputs: Parameter name to nested structure of input values.
        nodes: Program order.
        outputs: Nested structure of values and constants.
        static: Static arguments of this variant.
        metrics: What was reported.
    """

    name: str
    parameters: tuple[str, ...] = ()
    inputs: dict[str, Structure] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: Structure = None
    static: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)

    @property
    def reads(self) -> tuple[str, ...]:
        return unique(path for node in self.nodes for path in node.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        return unique(path for node in self.nodes for path in node.writes)

    def output_values(self) -> list[Value]:
        return [*leaves_of(self.outputs, Value), *(metric.value for metric in self.metrics)]

    def free_values(self) -> list[Value]:
        """Values used inside that are made outside (closures of a body)."""
        inside = {id(value) for value in leaves_of(self.inputs, Value)}
        free: dict[int, Value] = {}
        for node in self.nodes:
            for value in node.inputs():
                if id(value) not in inside:
                    free.setdefault(id(value), value)
            inside.update(id(value) for value in node.values())
        for value in self.output_values():
            if id(value) not in inside:
                free.setdefault(id(value), value)
        return list(free.values())


def all_nodes(graph: Graph) -> list[Node]:
    """All nodes of a graph and of its bodies."""
    found = list(graph.nodes)
    for node in graph.nodes:
        for body in node.bodies.values():
            found += all_nodes(body)
    return found


def unique(items: Any) -> tuple[Any, ...]:
    """Distinct items in first-seen order."""
    return tuple(dict.fromkeys(items))


def leaves_of(structure: Structure, kind: Any) -> Iterator[Any]:
    """All leaves of a nested dict / tuple / list that are of a kind, in order."""
    found: list[Any] = []
    _collect(structure, kind, found)
    return iter(found)


def _collect(structure: Structure, kind: Any, found: list[Any]) -> None:
    if isinstance(structure, kind):
        found.append(structure)
    elif isinstance(structure, dict):
        for value in structure.values():
            _collect(value, kind, found)
    elif isinstance(structure, (tuple, list)):
        for value in structure:
            _collect(value, kind, found)


def has_leaf(structure: Structure, kind: Any) -> bool:
    """Whether a nested structure has a leaf of a kind."""
    if isinstance(structure, kind):
        return True
    inner: Any = structure.values() if isinstance(structure, dict) else structure
    if inner is structure and not isinstance(structure, (tuple, list)):
        return False
    for value in inner:  # noqa: SIM110 - a generator takes twice as long, and this is called often
        if has_leaf(value, kind):
            return True
    return False


def map_structure(fn: Callable[[Any], Any], structure: Structure) -> Structure:
    """Applies a function to every leaf of nested dicts, tuples and lists."""
    if isinstance(structure, dict):
        return {key: map_structure(fn, value) for key, value in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(map_structure(fn, value) for value in structure))
    if isinstance(structure, (tuple, list)):
        return type(structure)(map_structure(fn, value) for value in structure)
    return fn(structure)


def map_with_key(
    fn: Callable[[tuple[Any, ...], Any], Any], structure: Structure, key: tuple[Any, ...] = ()
) -> Structure:
    """`map_structure` with the path of keys to each leaf as first argument."""
    if isinstance(structure, dict):
        return {name: map_with_key(fn, value, (*key, name)) for name, value in structure.items()}
    if isinstance(structure, (tuple, list)):
        items = [map_with_key(fn, value, (*key, index)) for index, value in enumerate(structure)]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return fn(key, structure)


def flatten_structure(structure: Structure, prefix: str = "") -> dict[str, Any]:
    """Flat dict with path keys ("a/b", "0/x"); a single leaf has the key ""."""
    if isinstance(structure, dict):
        pairs: list[tuple[str, Any]] = [(str(key), value) for key, value in structure.items()]
    elif isinstance(structure, (tuple, list)):
        pairs = [(str(index), value) for index, value in enumerate(structure)]
    else:
        return {prefix: structure}
    flat: dict[str, Any] = {}
    for key, value in pairs:
        flat.update(flatten_structure(value, f"{prefix}/{key}" if prefix else key))
    return flat


def unflatten_like(structure: Structure, flat: dict[str, Any], prefix: str = "") -> Structure:
    """Nests a flat dict with path keys like a structure."""
    if isinstance(structure, dict):
        return {k: unflatten_like(v, flat, f"{prefix}/{k}" if prefix else str(k)) for k, v in structure.items()}
    if isinstance(structure, (tuple, list)):
        items = [unflatten_like(v, flat, f"{prefix}/{i}" if prefix else str(i)) for i, v in enumerate(structure)]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return flat[prefix]

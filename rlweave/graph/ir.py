"""The graph IR: values, nodes and graphs.

A `Graph` is the list of nodes of one API method of a root component, in program order. A node is one call of a
graph function, or one of the structured kinds (gradient, scan, cond, while, vmap). Results are nested dicts, tuples
and lists whose leaves are `Value` objects; state is named by variable paths in `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from rlweave.backends.base import operator_for, user_location
from rlweave.errors import BuildError
from rlweave.graph.no_array import Symbolic
from rlweave.spaces import Box
from rlweave.tree import leaves_of

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
            self._used = (*leaves_of((self.args, self.kwargs), Value), *self.substitution.values())
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

"""The graph IR: values, nodes and graphs.

A `Graph` is the list of nodes of one API method of a root component, in program order. A node is a `Call` of a graph
function, `Gradients`, or has bodies: `Scan`, `Cond`, `While`, `VMap`; passes make `Transfer`s. Results are nested
dicts, tuples and lists whose leaves are `Value` objects; state is named by variable paths in `reads` and `writes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rlweave.backends.base import operator_for, user_location
from rlweave.errors import BuildError
from rlweave.graph.stand_ins import Symbolic
from rlweave.spaces import Box, Dim
from rlweave.tree import leaves_of, tree_map

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

    __slots__ = ("key", "name", "node", "space")

    def __init__(self, space: Box, node: Node | None, key: tuple[Any, ...] = (), name: str = "") -> None:
        self.space, self.node, self.key, self.name = space, node, key, name

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


_NO_BODIES: Mapping[str, Graph] = {}


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """One step of a graph; its class says which kind.

    Args:
        label: Its origin as text: `dqn/policy/dense-0.call`.
        args: Positional arguments, nested, with values, constants and variable collections as leaves.
        reads: Paths of the variables that it reads.
        writes: Paths of the variables that it writes.
        row_writes: Written variables of which it may write single rows in place.
        host: Runs in NumPy on the host.
        differentiable: Gradients may flow through it.
        result: Nested values that it makes.
        aliases: Result leaves may share memory with a variable or an argument.
        alias_variables: Paths of the variables that they may share memory with.
        device: Where it runs.
        replica: Index of the replica that it belongs to.
    """

    #: What it is called in messages.
    kind: ClassVar[str]

    label: str
    args: tuple[Any, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    row_writes: tuple[str, ...] = ()
    host: bool = False
    differentiable: bool = True
    result: Structure = None
    aliases: bool = False
    alias_variables: tuple[str, ...] = ()
    device: str | None = None
    replica: int | None = None
    _used: tuple[Value, ...] | None = field(default=None, init=False, repr=False)
    _made: tuple[Value, ...] | None = field(default=None, init=False, repr=False)

    @property
    def bodies(self) -> Mapping[str, Graph]:
        """Its sub-graphs by name."""
        return _NO_BODIES

    def inputs(self) -> tuple[Value, ...]:
        """All values that an emitted node uses, including those that its bodies take from outside."""
        # every pass asks for them, and arguments stay what they are; bodies lose their dead nodes later
        if self._used is None:
            self._used = self._direct_inputs()
        bodies = self.bodies
        if not bodies:
            return self._used
        return (*self._used, *(value for body in bodies.values() for value in body.free_values()))

    def _direct_inputs(self) -> tuple[Value, ...]:
        return tuple(leaves_of(self.args, Value))

    def values(self) -> tuple[Value, ...]:
        """The leaves of its result; of an emitted node."""
        if self._made is None:
            self._made = tuple(leaves_of(self.result, Value))
        return self._made

    def replace_inputs(self, chosen: Callable[[Any], Any]) -> None:
        """Makes it use other values: `chosen` gives what takes the place of a leaf."""
        self.args = tree_map(chosen, self.args)
        self._used = None


@dataclass(eq=False, slots=True, kw_only=True)
class Call(Node):
    """A call of a graph function, of an op, or of a plain function that rlweave puts there itself.

    Args:
        component: The component whose graph function is called.
        function: The undecorated graph function, or a plain function.
        kwargs: Keyword arguments, nested as `args`.
        substitution: Values in place of variables that it reads, by path.
        plain: The function is no method of a component: it takes arrays and variable collections only.
        op: Name of the operator that it calls, if it calls one.
        relabels: It returns its argument with other ranks.
        mixes_batch: Rows of the batch may depend on each other.
        looks_ahead: Results at a time step may depend on later ones.
        declared_spaces: Its result spaces are declared, not inferred, and its effects are unknown.
        aliased_writes: Paths of the variables that it assigns an array which something else may hold.
        integer_writes: Paths of variables without a gradient.
    """

    kind: ClassVar[str] = "call"

    component: ComponentBase | None = None
    function: Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    substitution: dict[str, Value] = field(default_factory=dict)
    plain: bool = False
    op: str | None = None
    relabels: bool = False
    mixes_batch: bool = False
    looks_ahead: bool = False
    declared_spaces: bool = False
    aliased_writes: tuple[str, ...] = ()
    integer_writes: tuple[str, ...] = ()

    def _direct_inputs(self) -> tuple[Value, ...]:
        return (*leaves_of((self.args, self.kwargs), Value), *self.substitution.values())

    def replace_inputs(self, chosen: Callable[[Any], Any]) -> None:
        self.kwargs = tree_map(chosen, self.kwargs)
        self.substitution = {path: chosen(value) for path, value in self.substitution.items()}
        Node.replace_inputs(self, chosen)


@dataclass(eq=False, slots=True, kw_only=True)
class Gradients(Node):
    """The derivatives of a loss with respect to variables or values; its arguments are the loss and those values.

    Args:
        paths: The variables, by path, that the loss is differentiated with respect to.
        by_values: The values that it is differentiated with respect to; None: variables.
        path: The forward pass: the nodes between these and the loss.
    """

    kind: ClassVar[str] = "gradient"

    paths: tuple[str, ...] = ()
    by_values: tuple[Value, ...] | None = None
    path: tuple[Node, ...] = ()

    @property
    def loss(self) -> Value:
        """The scalar."""
        loss: Value = self.args[0]
        return loss

    def replace_inputs(self, chosen: Callable[[Any], Any]) -> None:
        if self.by_values is not None:
            self.by_values = tuple([chosen(value) for value in self.by_values])
        Node.replace_inputs(self, chosen)


@dataclass(eq=False, slots=True, kw_only=True)
class Scan(Node):
    """A loop over time; its arguments are carry and xs, its body returns (carry, y).

    Args:
        body: One step.
        length: The number of steps, where there are no xs.
    """

    kind: ClassVar[str] = "scan"

    body: Graph
    length: int | None

    @property
    def bodies(self) -> Mapping[str, Graph]:
        return {"body": self.body}


@dataclass(eq=False, slots=True, kw_only=True)
class Cond(Node):
    """One of two bodies, chosen by its argument.

    Args:
        if_true: What runs where it is true.
        if_false: What runs where it is false.
    """

    kind: ClassVar[str] = "cond"

    if_true: Graph
    if_false: Graph

    @property
    def bodies(self) -> Mapping[str, Graph]:
        return {"true": self.if_true, "false": self.if_false}


@dataclass(eq=False, slots=True, kw_only=True)
class While(Node):
    """A loop while a test of the carry, its argument, holds.

    Args:
        test: From the carry to a bool.
        body: From the carry to the next one.
    """

    kind: ClassVar[str] = "while"

    differentiable: bool = False
    test: Graph
    body: Graph

    @property
    def bodies(self) -> Mapping[str, Graph]:
        return {"test": self.test, "body": self.body}


@dataclass(eq=False, slots=True, kw_only=True)
class VMap(Node):
    """A body over one more axis of its arguments.

    Args:
        body: What is computed for one index.
        in_axes: The axis of each argument; None repeats it.
        axis_size: Its length.
    """

    kind: ClassVar[str] = "vmap"

    body: Graph
    in_axes: tuple[int | None, ...]
    axis_size: int | Dim

    @property
    def bodies(self) -> Mapping[str, Graph]:
        return {"body": self.body}


@dataclass(eq=False, slots=True, kw_only=True)
class Transfer(Node):
    """Moves arrays (or the random state) from one place to another; made by the partition.

    Args:
        source: The place that they come from.
        target: The place that they go to.
        of: What is moved, as text.
    """

    kind: ClassVar[str] = "transfer"

    differentiable: bool = False
    source: str
    target: str
    of: str = ""


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


def gradients_of(nodes: Iterable[Node]) -> list[Gradients]:
    """The gradients among nodes."""
    return [node for node in nodes if isinstance(node, Gradients)]


def inner_nodes(node: Node) -> list[Node]:
    """The nodes of its bodies, those of their bodies not."""
    return [inner for body in node.bodies.values() for inner in body.nodes]


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

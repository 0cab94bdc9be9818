"""Which nodes a gradient goes through, and what may not lie on that path."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.ir import (
    RANDOM_PATHS,
    Call,
    Cond,
    Gradients,
    Graph,
    Node,
    Scan,
    Structure,
    Value,
    VMap,
    While,
    inner_nodes,
    unique,
)
from rlweave.graph.trace import Trace
from rlweave.tree import flatten_tree, leaves_of


def check_path(trace: Trace, gradient: Gradients, allow_unused: bool = False) -> None:
    """Finds the differentiated path of a gradient node and refuses what cannot be differentiated.

    The nodes of the path go to `gradient.path`.

    Args:
        trace: The trace in progress.
        gradient: The node, which is not emitted yet.
        allow_unused: The loss need not depend on the variables that it is differentiated with respect to.

    Raises:
        BuildError: A write that is read again, a host node or a while loop on the path; a loss that was computed
            outside of the body that holds the gradient, or that does not depend on the variables.
    """
    path, writers, spread = differentiated_path(trace.graph.nodes, gradient)
    gradient.path = tuple(path)
    for node in path:
        _refuse_undifferentiable(node, gradient, spread)
        _refuse_moved(node, gradient)
    for node, variable in writers:
        _refuse_write(node, variable, gradient)
    loss = gradient.loss
    outside = Spread(gradient)
    for outer in _around(trace):
        outside.over(outer.graph.nodes)
    if id(loss) in outside.values:
        _refuse_outside(gradient, loss)
    if not allow_unused:
        _refuse_unused(trace, gradient, path)


def _refuse_unused(trace: Trace, gradient: Gradients, path: Sequence[Node]) -> None:
    """Refuses variables (or values) without a path to the loss: nothing would ever move them."""
    loss: Value = gradient.loss
    if gradient.by_values is None:
        kind, wanted = "variables", list(gradient.paths)
        reached = {p for node in path for p in state_read(node)}
        unused = [p for p in wanted if p not in reached]
    else:
        kind, wanted = "values", [f"of {made_by(value)}" for value in gradient.by_values]
        used = {id(loss), *(id(value) for node in path for value in node.inputs())}
        unused = [w for w, value in zip(wanted, gradient.by_values, strict=True) if id(value) not in used]
    if wanted and not unused:
        return
    where = " called from ".join(trace.calls[-1:-3:-1]) or trace.graph.name
    of = f"the loss is a result of {made_by(loss)}"
    if not wanted:
        raise BuildError(
            f"there are no {kind} to differentiate by: nothing would be trained",
            where=where,
            received=of,
            fix="pass component.variables() of what is trained; integers and what has trainable=False are not in it",
        )
    names = ", ".join(unused[:4]) + (", ..." if len(unused) > 4 else "")
    if len(unused) == len(wanted):
        raise BuildError(
            f"no path leads from the {kind} to the loss: nothing would be trained",
            where=where,
            received=f"{of}; {kind}: {names}",
            fix="compute the loss from what these give, without stop_gradient and differentiable=False in between, "
            "or pass what it is computed from",
        )
    raise BuildError(
        f"the loss does not depend on some of the {kind}, which would never be trained",
        where=where,
        received=f"{of}; {len(unused)} of {len(wanted)} {kind}: {names}",
        fix=f"pass the {kind} that the loss depends on, or allow_unused=True where gradients of zero are meant",
    )


def made_by(value: Value) -> str:
    """What gives a value, in words."""
    return value.node.label if value.node is not None else f"input {value.name!r}"


def check_bodies(trace: Trace, node: Node) -> None:
    """Refuses gradients in the bodies of a node whose loss depends on what was differentiably computed outside.

    Such a path would lead out of the body: to values from around it, to a carry or to state of an earlier pass.

    Raises:
        BuildError: There is one.
    """
    for gradient in _gradients_in(node):
        outside = Spread(gradient)
        for outer in (*_around(trace), trace):
            outside.over(outer.graph.nodes)
        _refuse_entering(node, gradient, outside)


def differentiated_path(
    nodes: Sequence[Node], gradient: Gradients
) -> tuple[list[Node], list[tuple[Node, str]], Spread]:
    """Nodes between a read of the variables and the loss, and writes on the way that are read again.

    Returns:
        The path in program order; (node, variable path) of each write that the loss depends on; what depends on the
        variables or values that the loss is differentiated with respect to.
    """
    spread = Spread(gradient)
    spread.over(nodes)
    needed_values = {id(value) for value in leaves_of(gradient.args[0], Value)}
    needed_state: set[str] = set()
    path: list[Node] = []
    writers: list[tuple[Node, str]] = []
    for node in reversed(nodes):
        hit = not needed_values.isdisjoint(map(id, node.values()))
        state_hit = [p for p in node.writes if p in needed_state and (id(node), p) in spread.written]
        if not hit and not state_hit:
            continue
        if id(node) in spread.active:
            if hit:
                path.append(node)
            writers += [(node, p) for p in state_hit]
            needed_values.update(map(id, node.inputs()))
            needed_state.update(p for p in state_read(node) if p not in RANDOM_PATHS)
    return path[::-1], writers, spread


class Spread:
    """What depends differentiably on the variables or values that a gradient is taken by, in program order.

    Attributes:
        values: Ids of values that depend on them.
        tainted: Paths of variables that were written with something that depends on them.
        active: Ids of nodes that do.
        written: (node id, path) of such writes.
        read_back: (node that wrote, path) where such a variable was read again.
    """

    def __init__(self, gradient: Gradients) -> None:
        self.paths = frozenset(gradient.paths)
        self.sources = {id(value) for value in gradient.by_values or ()}
        self.values: set[int] = set()
        self.tainted: dict[str, Node] = {}
        self.active: set[int] = set()
        self.written: set[tuple[int, str]] = set()
        self.read_back: list[tuple[Node, str]] = []

    def over(self, nodes: Sequence[Node], own: bool = True) -> None:
        """Goes on over nodes.

        Args:
            nodes: In program order.
            own: Whether reads of the variables (and uses of the values) in these nodes count as well.
        """
        for node in nodes:
            reads = state_read(node)
            if not node.differentiable and not isinstance(node, While):
                self._overwritten(node)
                continue
            inputs = [id(value) for value in node.inputs()]
            hit = not self.values.isdisjoint(inputs)
            hit = hit or (own and not (self.sources.isdisjoint(inputs) and self.paths.isdisjoint(reads)))
            back = [(self.tainted[p], p) for p in reads if p in self.tainted] if self.tainted else []
            self.read_back += back
            if not hit and not back:
                self._overwritten(node)
                continue
            self.active.add(id(node))
            self.values.update(id(value) for value in node.values() if value.space.dtype.startswith("float"))
            for p in _differentiable_writes(node):
                self.tainted[p] = node
                self.written.add((id(node), p))

    def _overwritten(self, node: Node) -> None:
        if isinstance(node, Call):
            for p in node.writes:
                if p not in node.row_writes:
                    self.tainted.pop(p, None)

    def fork(self) -> Spread:
        """A copy that goes its own way."""
        other = copy.copy(self)
        other.values, other.tainted, other.read_back = set(self.values), dict(self.tainted), list(self.read_back)
        other.active, other.written = set(self.active), set(self.written)
        return other


def state_read(node: Node) -> tuple[str, ...]:
    """State that a node reads differentiably itself; a gradient pulls back what its forward nodes have read."""
    if isinstance(node, Gradients):
        return ()
    if not node.bodies:
        return node.reads
    inner = [n for body in node.bodies.values() for n in body.nodes if n.differentiable]
    return unique(p for n in inner for p in state_read(n))


def _differentiable_writes(node: Node) -> set[str]:
    if not node.bodies:
        integers = node.integer_writes if isinstance(node, Call) else ()  # they carry no gradient
        whole = {*RANDOM_PATHS, *integers}
        return {p for p in node.writes if p not in whole} if node.differentiable else set()
    return {p for body in node.bodies.values() for inner in body.nodes for p in _differentiable_writes(inner)}


# -- bodies ------------------------------------------------------------------------------------------------------


def _around(trace: Trace) -> list[Trace]:
    """The traces around one, outermost first."""
    found = []
    outer = trace.outer
    while outer is not None:
        found.append(outer)
        outer = outer.outer
    return found[::-1]


def _gradients_in(node: Node) -> list[Gradients]:
    return [g for n in inner_nodes(node) for g in ([n] if isinstance(n, Gradients) else _gradients_in(n))]


def _pairs(of: Structure, to: Structure) -> list[tuple[Value, Value]]:
    """Values at the same places of two structures."""
    left, right = flatten_tree(of), flatten_tree(to)
    return [
        (value, right[key])
        for key, value in left.items()
        if isinstance(value, Value) and isinstance(right.get(key), Value)
    ]


def _passes(node: Node, body: Graph) -> list[list[tuple[Value, Value]]]:
    """For each pass through a body that has to be looked at: which values its inputs stand for.

    A loop is looked at twice: the second pass sees the carry and the state of an earlier one.
    """
    inputs = tuple(body.inputs.values())
    if isinstance(node, Cond):
        return [[]]
    first = _pairs(node.args, inputs)
    if isinstance(node, VMap):
        return [first]
    carry = body.outputs[0] if isinstance(node, Scan) else body.outputs
    return [first, _pairs(carry, inputs[0])]


def _refuse_entering(node: Node, gradient: Gradients, outside: Spread) -> None:
    """Goes through the bodies of a node with what depends on a gradient's variables outside of its own body."""
    for body in node.bodies.values():
        direct = any(inner is gradient for inner in body.nodes)
        if not direct and not any(inner is gradient for n in body.nodes for inner in _gradients_in(n)):
            continue
        made = {id(value) for inner in body.nodes for value in inner.values()}
        made |= {id(value) for value in leaves_of(body.inputs, Value)}
        spread = outside.fork()
        for pairs in _passes(node, body):
            entered = {id(to) for of, to in pairs if id(of) in spread.values or id(of) in spread.sources}
            spread.values = (spread.values - made) | entered
            if direct:
                foreign = spread.fork()
                foreign.over(body.nodes, own=False)
                if id(gradient.loss) in foreign.values:
                    _refuse_outside(gradient, gradient.loss)
                # values that are made in the body are new ones in each pass
                spread.sources -= made
                spread.over(body.nodes)
            else:
                for inner in body.nodes:
                    _refuse_entering(inner, gradient, spread)
                    spread.over([inner])


def _refuse_outside(gradient: Gradients, loss: Value) -> None:
    raise BuildError(
        "the differentiated path starts outside of the body that takes the gradient",
        where=gradient.label,
        received=f"the loss, made by {made_by(loss)}, depends on what is differentiated by through values or variables "
        "from outside, or of an earlier pass",
        fix="compute the loss and what it depends on in the same body, or cut it off with graph.stop_gradient",
    )


def _refuse_undifferentiable(node: Node, gradient: Gradients, spread: Spread) -> None:
    if isinstance(node, While):
        raise BuildError(
            "a gradient goes through graph.while_",
            where=gradient.label,
            received=f"{node.label} lies between the variables and the loss",
            fix="use graph.scan with a fixed number of steps, which can be differentiated",
        )
    if node.host:
        raise BuildError(
            "a gradient goes through a host node",
            where=gradient.label,
            received=f"{node.label} lies between the variables and the loss",
            fix="compute it in a device graph function, or declare the host function differentiable=False",
        )
    for body in node.bodies.values():
        inside = spread.fork()
        inside.tainted, inside.read_back = {}, []
        for pairs in _passes(node, body):
            inside.values |= {id(to) for of, to in pairs if id(of) in inside.values or id(of) in inside.sources}
            inside.over(body.nodes)
        for inner in body.nodes:
            if id(inner) in inside.active:
                _refuse_undifferentiable(inner, gradient, inside)
        for writer, variable in inside.read_back:
            _refuse_write(writer, variable, gradient)


def _refuse_moved(node: Node, gradient: Gradients) -> None:
    """Refuses a body on the path that reads a variable after it, or an earlier pass, has written it.

    A derivative counts each reading of a variable with the value that it had; in a body there is one value only.
    """
    for body in node.bodies.values():
        moved: dict[str, Node] = {}
        for _ in _passes(node, body):
            for inner in body.nodes:
                again = [p for p in state_read(inner) if p in moved] if inner.differentiable else []
                if again:
                    _refuse_write(moved[again[0]], again[0], gradient)
                moved.update({p: inner for p in inner.writes if p in gradient.paths})
        for inner in body.nodes:
            _refuse_moved(inner, gradient)


def _refuse_write(node: Node, variable: str, gradient: Gradients) -> None:
    raise BuildError(
        "a variable is written inside a differentiated path",
        where=gradient.label,
        received=f"{node.label} writes {variable!r}, and the loss reads it afterwards",
        fix="hand the new value on as a value: graph.substitute(component, values) reads values in place of variables "
        "(or declare the graph function differentiable=False where the gradient is meant to stop)",
    )


def full_path(gradient: Gradients) -> list[Node]:
    """The path of a gradient with the paths of the gradients nested in it."""
    found: dict[int, Node] = {}
    stack: list[Any] = list(gradient.path)
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            if isinstance(node, Gradients):
                stack.extend(node.path)
    return list(found.values())

"""The replication pass: a batch is split over devices, each differentiates its part, and gradients are averaged.

Variables stay where they are, once. For each gradient, the nodes between its variables and its loss (and what only
leads to them, row by row) are there once for each replica, on its device; they read values of the variables that were
taken where these are (`graph.substitute` in place of the store), and parts of what has a batch rank. The gradients of
all replicas are averaged before they are used, so clipping and optimizer steps see those of the whole batch, once.
What is used besides comes together again: what has a batch rank is joined, other floats are averaged.

So a loss has to be a mean over the batch. That is tried out: a graph function that does something else with a batch
than with its parts is refused, or, where it does not lie between variables and loss, runs once on the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave import ops
from rlweave.backends.base import TOGETHER
from rlweave.errors import BuildError
from rlweave.extensions.replication.copying import copy_node
from rlweave.extensions.replication.sharding import shard
from rlweave.extensions.replication.splitting import batch_axis, batch_size, check_rows, may_be_split, rows_of
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import (
    RANDOM_PATHS,
    Call,
    Gradients,
    Graph,
    Node,
    Structure,
    Value,
    all_nodes,
    gradients_of,
    unique,
)
from rlweave.graph.session.inference import Session
from rlweave.graph.values import make_result
from rlweave.graph.variable import Variable, VariableCollection, read_variables
from rlweave.tree import leaves_of


def replicate(graph: Graph, executor: GraphExecutor, devices: Sequence[str]) -> None:
    """Replicates what is differentiated in a graph and in its bodies, in place: a pass.

    Args:
        graph: A traced graph without dead nodes.
        executor: Its session knows the variables.
        devices: The device of each replica, or one place with all of them; a single device: nothing happens.

    Raises:
        BuildError: Splitting the batch would change what is computed, or a loop would be on several devices.
    """
    if any(TOGETHER in device for device in devices):
        shard(graph, executor.backend, devices[0])
    elif len(devices) > 1:
        _block(graph, executor.session, devices, around=None)


def _block(graph: Graph, session: Session, devices: Sequence[str], around: Node | None) -> None:
    for node in graph.nodes:
        for body in node.bodies.values():
            _block(body, session, devices, node)
    if not any(isinstance(node, Gradients) for node in graph.nodes):
        return
    if around is not None and len(set(devices)) > 1:
        raise BuildError(
            "a gradient inside a loop cannot be replicated over several devices",
            where=around.label,
            received=f"replicas={list(devices)}, and a body is in one place",
            fix='take one step in each call of an API method, name one device several times, or use backend="jax"',
        )
    _Replication(graph, session, devices).run()


def split_rows(x: Any, count: int, axis: int) -> tuple[Any, ...]:
    """Graph function body: equal parts of an array along its batch axis."""
    check_rows(x.shape[axis], count, "an input of what is differentiated")
    rows = x.shape[axis] // count
    before = (slice(None),) * axis
    return tuple([x[(*before, slice(k * rows, (k + 1) * rows))] for k in range(count)])


def join_rows(parts: Any, axis: int) -> Any:
    """Graph function body: the parts of all replicas as one batch."""
    return ops.concat(list(parts), axis)


def average(parts: Any) -> Any:
    """Graph function body: the mean of one number (or array, or dict of arrays) over replicas."""
    if isinstance(parts[0], dict):
        return {key: _mean([part[key] for part in parts]) for key in parts[0]}
    return _mean(parts)


def _mean(parts: Any) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    return ops.multiply(total, 1.0 / len(parts))


class _Replication:
    """One block of nodes."""

    def __init__(self, graph: Graph, session: Session, devices: Sequence[str]) -> None:
        self.graph, self.session = graph, session
        self.devices, self.count = devices, len(devices)
        self.variables = {variable.path: variable for variable in session.all_variables()}
        self.gradients = gradients_of(graph.nodes)
        self.nodes: list[Node] = []
        #: What rows are, see `rows_of`.
        self.rows = ""
        #: For each value that replicas use, what it is for each of them.
        self.parts: dict[int, list[Value]] = {}
        self.clones: dict[int, list[Node]] = {}
        #: Values of variables as they are now, and those that each replicated node has read.
        self.present: dict[str, Value] = {}
        self.seen: dict[int, dict[str, Value]] = {}
        self.replicated = self._between_variables_and_losses()
        self._add_what_leads_to_it()
        self.paths = self._paths()

    def run(self) -> None:
        """Replaces the nodes of the graph."""
        outside = self._used_outside()
        split = False
        for node in self.graph.nodes:
            if id(node) in self.replicated:
                split = self._replicate(node) or split
                for value in node.values():
                    if id(value) in outside:
                        self._bring_together(value, node)
            elif isinstance(node, Gradients):
                self._differentiate(node)
            else:
                self.nodes.append(node)
            for path in node.writes:
                self.present.pop(path, None)
        if not split:
            raise BuildError(
                "there is nothing to split for the replicas: no input of what is differentiated has a batch rank",
                where=self.gradients[0].label,
                fix="declare the rows: add_batch_rank=True in the space of an input, or graph.batch_rank(x)",
            )
        self.graph.nodes = self.nodes

    # -- what is replicated --------------------------------------------------------------------------------------

    def _between_variables_and_losses(self) -> set[int]:
        found: set[int] = set()
        for gradient in self.gradients:
            if gradient.by_values is not None:
                self._refuse("a gradient by values cannot be replicated", gradient, "differentiate by variables")
            for node in gradient.path:
                if isinstance(node, Gradients):
                    self._refuse("a nested gradient cannot be replicated", node, "leave replicas out for this graph")
                inner = [n for body in node.bodies.values() for n in all_nodes(body)]
                writes = unique(path for n in (node, *inner) for path in n.writes)
                if any(path in RANDOM_PATHS for path in writes):
                    self._refuse(
                        "random numbers are drawn inside what is replicated",
                        node,
                        "draw them before, for the whole batch, in a graph function of their own",
                    )
                if writes:
                    self._refuse(
                        f"a variable is written inside what is replicated: {writes[0]}",
                        node,
                        "write it in a graph function of its own, which then sees the whole batch once",
                    )
                mixing = [n for n in (node, *inner) if _mixes(n) or may_be_split(n, self.session) is False]
                if mixing:
                    self._refuse(
                        "a graph function does something else with a batch than with its parts",
                        mixing[0],
                        "a loss is a mean over rows that do not see each other; what mixes rows (a normalization) "
                        "belongs into a graph function of its own before it, which then runs once on the whole batch",
                    )
                found.add(id(node))
        return found

    def _refuse(self, what: str, node: Node, fix: str) -> None:
        raise BuildError(what, where=node.label, received=f"{self.count} replicas of {self.graph.name}", fix=fix)

    def _add_what_leads_to_it(self) -> None:
        """Adds nodes that treat rows one by one and lead to replicated nodes only, or from some of them to others.

        The first are a target network, say; the second V-trace, without which a forward pass would go from the devices
        of replicas to another one and back.
        """
        users: dict[int, list[Node]] = {}
        later = set(self.replicated)
        for node in self.graph.nodes:
            for value in node.inputs():
                users.setdefault(id(value), []).append(node)
                if value.node is not None and id(value.node) in later:
                    later.add(id(node))
        handed_out = {id(value) for value in self.graph.output_values()}
        for node in reversed(self.graph.nodes):
            values = node.values()
            if id(node) in self.replicated or not isinstance(node, Call) or node.host or node.writes or not values:
                continue
            if _mixes(node):
                continue
            if any((batch_axis(value.space) or 0) < 0 or batch_axis(value.space) is None for value in values):
                continue
            inside = [id(user) in self.replicated for value in values for user in users.get(id(value), ())]
            only = all(inside) and not any(id(value) in handed_out for value in values)
            if any(inside) and (only or id(node) in later) and may_be_split(node, self.session):
                self.replicated.add(id(node))

    def _paths(self) -> tuple[str, ...]:
        inside = [node for node in self.graph.nodes if id(node) in self.replicated]
        inside += [inner for node in inside for body in node.bodies.values() for inner in all_nodes(body)]
        read = [path for node in inside for path in node.reads if path not in RANDOM_PATHS]
        return unique([*read, *(path for gradient in self.gradients for path in gradient.paths)])

    def _used_outside(self) -> set[int]:
        found = {id(value) for value in self.graph.output_values()}
        for node in self.graph.nodes:
            if id(node) not in self.replicated and not isinstance(node, Gradients):
                found.update(id(value) for value in node.inputs())
        return found

    # -- new nodes -----------------------------------------------------------------------------------------------

    def _add(self, function: Any, label: str, args: tuple[Any, ...], result: Structure, **options: Any) -> Node:
        node = Call(label=label, function=function, args=args, differentiable=False, plain=True, **options)
        node.result = result
        for value in leaves_of(result, Value):
            value.node = node
        self.nodes.append(node)
        return node

    def _read(self) -> None:
        """Takes the present values of all variables that replicas read, where these are."""
        by_place: dict[Any, dict[str, Variable]] = {}
        for path in self.paths:
            if path not in self.present:
                variable = self.variables[path]
                by_place.setdefault(self.session.place_of(variable), {})[path] = variable
        for variables in by_place.values():
            values = {path: Value(variable.space, None, (path,)) for path, variable in variables.items()}
            arguments = (VariableCollection(variables),)
            node = self._add(
                read_variables, f"{self.graph.name}.weights", arguments, values, reads=tuple(variables), aliases=True
            )
            node.alias_variables = tuple(variables)
            self.present.update(values)

    def _split(self, value: Value, user: Node) -> bool:
        """Makes the parts of a value that comes from outside; whether it has rows."""
        axis = batch_axis(value.space)
        if axis is None:
            self.parts[id(value)] = [value] * self.count
            return False
        size, rows = batch_size(value.space), rows_of(value.space)
        self.rows = self.rows or rows
        if axis < 0 or rows != self.rows:
            raise BuildError(
                "a batch cannot be divided among the replicas",
                where=user.label,
                received=f"{value.space!r}; rows are {self.rows} elsewhere",
                fix="fold ranks before, or inside of, all that is differentiated",
            )
        if size is not None:
            check_rows(size, self.count, user.label, BuildError)
        name = value.name if value.node is None else value.node.label.rpartition(".")[2].lstrip("_")
        keys = "_".join(str(key) for key in value.key)
        label = f"{self.graph.name}.{name}{'_' if keys else ''}{keys}_part"
        parts = tuple(Value(value.space, None, (k,)) for k in range(self.count))
        self._add(split_rows, label, (value, self.count, axis), parts)
        self.parts[id(value)] = list(parts)
        return True

    def _replicate(self, node: Node) -> bool:
        """Adds a node once for each replica; whether that split something."""
        inside = [node, *(inner for body in node.bodies.values() for inner in all_nodes(body))]
        paths = unique(path for n in inside for path in n.reads)
        if any(path not in self.present for path in paths):
            self._read()
        self.seen[id(node)] = {path: self.present[path] for path in paths}
        split = False
        for value in node.inputs():
            if id(value) not in self.parts:
                split = self._split(value, node) or split
        self.clones[id(node)] = []
        made: list[dict[int, Value]] = []
        for k, device in enumerate(self.devices):
            values = {key: parts[k] for key, parts in self.parts.items()}
            clone = copy_node(node, values, self.present, device, k)
            self.clones[id(node)].append(clone)
            self.nodes.append(clone)
            made.append(values)
        for value in node.values():
            self.parts[id(value)] = [values[id(value)] for values in made]
        return split

    def _bring_together(self, value: Value, node: Node) -> None:
        parts, axis = self.parts[id(value)], batch_axis(value.space)
        name = node.label.rpartition(".")[2].lstrip("_")
        if axis is None and value.space.dtype.startswith("float"):
            self._add(average, f"{self.graph.name}.{name}_mean", (parts,), value)
        elif axis is None or axis < 0:
            raise BuildError(
                "a result of what is replicated cannot be brought together again",
                where=node.label,
                received=repr(value.space),
                fix="hand out floats that are means over the batch, or values with a batch rank",
            )
        else:
            self._add(join_rows, f"{self.graph.name}.{name}_joined", (parts, axis), value)

    def _differentiate(self, gradient: Gradients) -> None:
        """Adds a gradient for each replica, and their mean."""
        paths = gradient.paths
        used: dict[str, dict[int, Value]] = {path: {} for path in paths}
        for node in gradient.path:
            for path, value in self.seen[id(node)].items():
                if path in used:
                    used[path][id(value)] = value
        for path, found in used.items():
            if len(found) > 1:
                self._refuse(
                    f"a variable is written between the nodes of one forward pass: {path}",
                    gradient,
                    "compute the loss at once, before variables are written",
                )
        if any(not found and path not in self.present for path, found in used.items()):
            self._read()
        values = {path: next(iter(found.values())) if found else self.present[path] for path, found in used.items()}
        results = []
        for k, device in enumerate(self.devices):
            loss = self.parts[id(gradient.loss)][k]
            clone = Gradients(
                label=f"{gradient.label}_{k}",
                args=(loss, values),
                device=device,
                by_values=tuple(values.values()),
                path=tuple(self.clones[id(node)][k] for node in gradient.path),
                replica=k,
            )
            clone.result = make_result(clone, {path: self.variables[path].space for path in paths})
            self.nodes.append(clone)
            results.append(clone.result)
        self._add(average, f"{self.graph.name}.mean_gradients", (results,), gradient.result)


def _mixes(node: Node) -> bool:
    """Whether a graph function is declared to mix rows."""
    return isinstance(node, Call) and node.mixes_batch

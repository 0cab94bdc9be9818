"""Tracing: an API method runs over symbolic values, and each call of a graph function in it becomes a node.

What the node returns, and which variables it touches, is found by `session/inference.py`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlweave import ops
from rlweave.errors import BuildError
from rlweave.graph.current import require_trace, tracing
from rlweave.graph.decorators import ApiMethod, GraphFunction, describe
from rlweave.graph.ir import RANDOM_PATHS, Call, Graph, Metric, Node, NotReady, Structure, Unknown, Value
from rlweave.graph.values import make_inputs, same, spaces_of, variables_of_arguments
from rlweave.graph.variable import Variable
from rlweave.spaces import Box
from rlweave.tree import flatten_tree, has_leaf, leaves_of, tree_map, unflatten_like

if TYPE_CHECKING:
    from rlweave.graph.composition import ComponentBase
    from rlweave.graph.session.inference import Session


@dataclass
class _SplitWrites:
    """Which leaf of a split has written which variable, and the leaf that is traced now."""

    by_path: dict[str, str] = field(default_factory=dict)
    leaf: str = ""


class Trace:
    """Records the nodes of one API method, or of a body inside it.

    Args:
        session: The build it belongs to.
        graph: Where nodes go.
        outer: The trace around a body.
    """

    def __init__(self, session: Session, graph: Graph, outer: Trace | None = None) -> None:
        self.session, self.graph, self.outer = session, graph, outer
        self.substitutions: list[dict[str, Value]] = list(outer.substitutions) if outer else []
        self.calls: list[str] = list(outer.calls) if outer else []
        self.split_writes: list[_SplitWrites] = outer.split_writes if outer else []
        self.in_vmap: bool = outer.in_vmap if outer else False
        self.unknown = False
        self.created: set[int] = outer.created if outer else set()

    # -- calls ---------------------------------------------------------------------------------------------------

    def call(self, component: ComponentBase, declared: ApiMethod | GraphFunction, args: Any, kwargs: Any) -> Structure:
        """Calls a declared method of a component."""
        if not self.session.knows(component):
            raise BuildError(
                "a component was used that was never added",
                where=f"{component.path}.{declared.name}",
                received=f"called from {self.calls[-1] if self.calls else self.graph.name}",
                fix="assign it to an attribute of a component of the graph, or wrap it in shared(...) there if it is "
                "owned elsewhere",
            )
        arguments = declared.bind(component, args, kwargs)
        for name in declared.static:
            if has_leaf(arguments[name], (Value, Unknown)):
                raise BuildError(
                    f"static argument {name!r} is a symbolic value",
                    where=f"{component.path}.{declared.name}",
                    received=describe(arguments[name]),
                    fix="pass a Python constant, or take the name out of static",
                )
        needs = self.session.needs_of(component)
        if needs and (isinstance(declared, ApiMethod) or not declared.name.startswith("_")):
            for name, argument in arguments.items():
                if name in needs:
                    self.session.record_input(component, declared.name, name, argument, self.calls)
        if declared.split:
            return self._split(component, declared, arguments)
        like = None
        if declared.flatten:
            containers = (a for a in arguments.values() if isinstance(a, (dict, tuple, list)))
            like = next(containers, next((a for a in arguments.values() if _is_data(a)), None))
            arguments = {
                name: flatten_tree(argument) if _is_data(argument) else argument for name, argument in arguments.items()
            }
        result = self._run(component, declared, arguments)
        if like is not None:
            result = _nest_again(result, like)
        return result

    def _run(
        self,
        component: ComponentBase,
        declared: ApiMethod | GraphFunction,
        arguments: dict[str, Any],
        key: str | None = None,
    ) -> Structure:
        first = () if key is None else (key,)
        if isinstance(declared, GraphFunction):
            return self._graph_call(component, declared, first, arguments)
        self.calls.append(f"{self.session.path_of(component)}.{declared.name}")
        try:
            positional, keywords = _pass_on(declared, arguments)
            return declared.function(component, *first, *positional, **keywords)
        finally:
            self.calls.pop()

    def _split(
        self, component: ComponentBase, declared: ApiMethod | GraphFunction, arguments: dict[str, Any]
    ) -> Structure:
        containers = {name: a for name, a in arguments.items() if isinstance(a, (dict, tuple, list))}
        if not containers:
            return self._run(component, declared, arguments, "" if declared.with_key else None)
        name, pattern = next(iter(containers.items()))
        flat = {name: flatten_tree(argument) for name, argument in containers.items()}
        keys = list(flat[name])
        for other, leaves in flat.items():
            if list(leaves) != keys:
                raise BuildError(
                    "split arguments are nested differently",
                    where=f"{component.path}.{declared.name}",
                    received=f"{name!r} has leaves {keys}, {other!r} has {list(leaves)}",
                    fix="pass containers of one structure; arguments that are no containers are broadcast",
                )
        written = _SplitWrites()
        self.split_writes.append(written)
        try:
            results = {}
            for key in keys:
                one = {n: flat[n][key] if n in flat else argument for n, argument in arguments.items()}
                written.leaf = key
                results[key] = self._run(component, declared, one, key if declared.with_key else None)
        finally:
            self.split_writes.pop()
        if not results:
            return unflatten_like(pattern, {})
        first = results[keys[0]]
        if isinstance(first, tuple):
            return tuple(unflatten_like(pattern, {k: r[i] for k, r in results.items()}) for i in range(len(first)))
        return unflatten_like(pattern, results)

    def _graph_call(
        self, component: ComponentBase, declared: GraphFunction, first: tuple[Any, ...], arguments: dict[str, Any]
    ) -> Structure:
        where = f"{self.session.path_of(component)}.{declared.name}"
        known = self.session.is_complete(component) and not has_leaf(arguments, (Unknown, Variable))
        if not known:
            passed = next(leaves_of(arguments, Variable), None)
            if passed is not None:
                passed.refuse()
            self.unknown = True
            count = declared.returns if declared.returns is not None else count_returns(declared.function)
            if count is None or count == 1:
                return Unknown(where)
            return tuple(Unknown(where) for _ in range(count)) if count else None
        positional, keywords = _pass_on(declared, arguments)
        device = self.session.device_of(component)
        # a component without a device of its own runs where its inputs are
        device = device if device == "host" or self.session.is_placed(component) else None
        node = Call(
            label=where,
            component=component,
            function=declared.function,
            args=(*first, *positional),
            kwargs=keywords,
            host=declared.host or device == "host",
            differentiable=declared.differentiable,
            device=device,
            mixes_batch=declared.mixes_batch or component.mixes_batch,
            looks_ahead=declared.looks_ahead,
        )
        self._substitute(node)
        self.session.infer(node, declared)
        self._check_count(declared, node)
        self.emit(node)
        return node.result

    def _check_count(self, declared: GraphFunction, node: Call) -> None:
        result = node.result
        found = len(result) if isinstance(result, tuple) else (0 if result is None else 1)
        before = self.session.result_counts.setdefault((id(node.component), declared.name), found)
        expected = declared.returns
        if expected is not None and expected != found:
            raise BuildError(
                "a graph function returned a different number of results than it declares",
                where=node.label,
                received=f"{found} results, @graph_fn(returns={expected})",
                fix="correct returns=, or the return statement",
            )
        if before != found:
            raise BuildError(
                "a graph function returned a different number of results when it was traced again",
                where=node.label,
                received=f"first {before}, now {found}",
                fix="return the same number of results on every call; split it into two graph functions",
            )

    def call_internal(
        self,
        function: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        *,
        component: ComponentBase | None = None,
        differentiable: bool = True,
        kwargs: dict[str, Any] | None = None,
        op: str | None = None,
    ) -> Structure:
        """Emits a call of a plain function (an op, a read of variables, a synchronization)."""
        where = f"{component.path if component else self.calls[-1] if self.calls else self.graph.name}.{name}"
        if has_leaf((args, kwargs or {}), Unknown):
            self.unknown = True
            return Unknown(where)
        node = Call(
            label=where,
            component=component,
            function=function,
            args=args,
            kwargs=dict(kwargs or {}),
            differentiable=differentiable,
            plain=True,
            op=op,
            mixes_batch=component is not None and component.mixes_batch,
        )
        variables = variables_of_arguments(args)
        node.host = bool(variables) and all(self.session.place_of(v) == "host" for v in variables)
        self._substitute(node)
        self.session.infer(node, None)
        self.emit(node)
        return node.result

    def relabel(self, value: Value, space: Box, differentiable: bool = True) -> Value:
        """The same array as a value of another space (other roles of its axes), or as a constant for gradients."""
        label = f"{self.graph.name}.{'batch_rank' if differentiable else 'stop_gradient'}"
        node = Call(label=label, function=same, args=(value,), differentiable=differentiable, plain=True, relabels=True)
        node.aliases = value.node is None or value.node.aliases
        node.alias_variables = value.node.alias_variables if value.node is not None else ()
        node.result = Value(space, node)
        self.emit(node)
        result: Value = node.result
        return result

    def _substitute(self, node: Call) -> None:
        for mapping in self.substitutions:
            node.substitution.update(mapping)

    def emit(self, node: Node) -> None:
        """Appends a node to the graph."""
        if isinstance(node, Call) and node.substitution:
            for path in node.writes:
                if path in node.substitution:
                    raise BuildError(
                        "a substituted variable was written",
                        where=node.label,
                        received=path,
                        fix="only read variables through graph.substitute",
                    )
            node.substitution = {path: v for path, v in node.substitution.items() if path in node.reads}
            node.reads = tuple(path for path in node.reads if path not in node.substitution)
        if self.in_vmap and node.writes:
            raise BuildError(
                "a variable is written inside graph.vmap",
                where=node.label,
                received=f"writes {list(node.writes)}",
                fix="hand the new values out as results, and draw random numbers outside",
            )
        for written in self.split_writes:
            for path in node.writes:
                leaf = written.by_path.setdefault(path, written.leaf)
                if leaf != written.leaf and path not in RANDOM_PATHS:
                    raise BuildError(
                        "several leaves of a split write one variable",
                        where=node.label,
                        received=f"{path} is written for leaves {leaf!r} and {written.leaf!r}",
                        fix="use flatten=True and write it once",
                    )
        self.graph.nodes.append(node)

    def metric(self, name: str, value: Any, reduce: str) -> None:
        """Adds a reported number."""
        names = {metric.name for metric in self.graph.metrics}
        unique, n = name, 1
        while unique in names:
            n += 1
            unique = f"{name}-{n}"
        self.graph.metrics.append(Metric(unique, value, reduce))

    # -- bodies --------------------------------------------------------------------------------------------------

    def body(self, name: str, function: Callable[..., Any], arguments: tuple[Structure, ...]) -> Graph:
        """Traces a body over arguments (nested spaces or constants) into a sub-graph."""
        graph = Graph(name, tuple(f"arg{i}" for i in range(len(arguments))))
        graph.inputs = {
            parameter: make_inputs(argument, parameter)
            for parameter, argument in zip(graph.parameters, arguments, strict=True)
        }
        inner = Trace(self.session, graph, self)
        with tracing(inner):
            graph.outputs = lift(function(*graph.inputs.values()))
        if inner.unknown or has_leaf(graph.outputs, Unknown):
            self.unknown = True
            raise NotReady(f"body {name}")
        return graph


def _is_data(argument: Any) -> bool:
    return isinstance(argument, (Value, dict, tuple, list))


def _nest_again(result: Structure, like: Structure) -> Structure:
    keys = list(flatten_tree(like))

    def nest(item: Any) -> Any:
        return unflatten_like(like, item) if isinstance(item, dict) and sorted(item) == sorted(keys) else item

    return tuple(nest(item) for item in result) if isinstance(result, tuple) else nest(result)


def _pass_on(declared: ApiMethod | GraphFunction, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if declared.all_positional:
        return tuple(arguments.values()), {}
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for name, parameter in declared.signature.parameters.items():
        if name not in arguments:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(arguments[name])
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            keywords.update(arguments[name])
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[name] = arguments[name]
        else:
            positional.append(arguments[name])
    return tuple(positional), keywords


@lru_cache(maxsize=4096)
def count_returns(function: Callable[..., Any]) -> int | None:
    """Number of results by the return statements of a function; None when they do not say it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return None
    counts: set[int | None] = set()
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return None
    stack: list[ast.AST] = list(definition.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return):
            if isinstance(node.value, ast.Tuple):
                starred = any(isinstance(item, ast.Starred) for item in node.value.elts)
                counts.add(None if starred else len(node.value.elts))
            elif node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
                counts.add(0)
            else:
                counts.add(1 if not isinstance(node.value, ast.Call) else None)
        stack.extend(ast.iter_child_nodes(node))
    if not counts:
        return 0
    return counts.pop() if len(counts) == 1 else None


def lift(structure: Structure) -> Structure:
    """Constants in a carry become values, so that the body may change them."""
    trace = require_trace("control flow")

    def lift(leaf: Any) -> Any:
        if isinstance(leaf, Value | Unknown) or leaf is None:
            return leaf
        space = spaces_of(leaf)
        return trace.call_internal(_constant, "constant", (), kwargs={"value": leaf, "dtype": space.dtype})

    return tree_map(lift, structure)


def _constant(value: Any, dtype: str) -> Any:
    return ops.asarray(value, dtype)

"""Control flow: scan, repeat, cond, while_ and vmap over bodies that are traced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.errors import BuildError
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.differentiation import check_bodies
from rlweave.graph.ir import (
    Cond,
    Graph,
    Node,
    Scan,
    Structure,
    Unknown,
    Value,
    VMap,
    While,
    inner_nodes,
    unique,
)
from rlweave.graph.trace import Trace, lift
from rlweave.graph.values import make_result, spaces_of
from rlweave.spaces import Box, Dim, from_axes
from rlweave.tree import has_leaf, leaves_of, tree_map


def scan(method: Callable[..., Any], carry: Structure, xs: Structure = None, length: int | None = None) -> Any:
    """Loops over time: `carry, y = method(carry, x)`; variables that the body writes are carried along.

    Args:
        method: API method or plain function over values, of (carry, x), returning (carry, y).
        carry: Nested values of fixed spaces.
        xs: Nested values with a leading axis to loop over, or None.
        length: Number of steps where there is no `xs`.

    Returns:
        (last carry, ys with a leading axis).
    """
    trace: Trace = require_trace("scan")
    if has_leaf((carry, xs), Unknown):
        trace.unknown = True
        return (Unknown("scan"), Unknown("scan"))
    carry, xs = lift(carry), _arrays_to_values(xs)
    xs_spaces = tree_map(lambda leaf: _without_first(leaf) if isinstance(leaf, Value) else leaf, xs)
    leading = _scan_length(trace, xs, length)
    body = trace.body("scan", method, (spaces_of(carry), xs_spaces))
    _forbid_host(body, "scan")
    if not isinstance(body.outputs, tuple) or len(body.outputs) != 2:
        raise BuildError(
            "the body of a scan returned something else than (carry, y)",
            where=trace.graph.name,
            received=describe(body.outputs),
            fix="return a pair; None as y where there is none",
        )
    _same_spaces(spaces_of(carry), spaces_of(body.outputs[0]), "carry of a scan", trace)
    stacked = tree_map(lambda leaf: _with_first(leaf, leading), spaces_of(body.outputs[1]))
    metrics = tuple((metric.name, metric.reduce) for metric in body.metrics)
    stacked_metrics = tuple(_with_first(metric.value.space, leading) for metric in body.metrics)
    body.outputs = (body.outputs[0], (body.outputs[1], tuple(metric.value for metric in body.metrics)))
    body.metrics = []
    node = Scan(label=f"{trace.graph.name}.scan", args=(carry, xs), body=body, length=length)
    _look_into(trace, node)
    node.result = make_result(node, (spaces_of(carry), (stacked, stacked_metrics)))
    trace.emit(node)
    _reduce_metrics(trace, metrics, node.result[1][1])
    return node.result[0], node.result[1][0]


def _scan_length(trace: Trace, xs: Structure, length: Any) -> int | Dim:
    if isinstance(length, bool) or not isinstance(length, int | None):
        raise BuildError(
            "the length of a scan is no Python constant",
            where=trace.graph.name,
            received=describe(length),
            fix="make it a static argument of the API method; where it depends on values use graph.while_",
        )
    axes = unique([leaf.space.axes[0] for leaf in leaves_of(xs, Value)] + ([] if length is None else [length]))
    if not axes:
        raise BuildError("scan needs a length", where=trace.graph.name, fix="pass xs, or length=")
    if len(axes) > 1 and {_fixed(axis) for axis in axes} != {_fixed(axes[0])}:
        raise BuildError(
            "the inputs of a scan differ in length",
            where=trace.graph.name,
            received=", ".join(str(axis) for axis in axes),
            fix="give all xs (and length) one leading axis; slice the longer ones",
        )
    return axes[0]


def _fixed(axis: int | Dim) -> int | Dim:
    """The number of a fixed axis, or the symbolic axis itself."""
    if isinstance(axis, Dim) and all("=" in symbol for symbol in axis.symbols):
        return axis.evaluate({})
    return axis


def repeat(n: int, method: Callable[..., Any], carry: Structure = ()) -> Any:
    """Runs a body n times: `carry = method(*carry)` for a tuple of values, or for its effects on variables only.

    Args:
        n: A Python constant.
        method: API method or plain function; returns the new carry (or None when there is none).
        carry: Tuple of nested values.

    Returns:
        The last carry.
    """

    def step(state: Any, _: Any) -> Any:
        result = method(*state)
        return (() if result is None else result if isinstance(result, tuple) else (result,)), None

    last, _ = scan(step, carry if isinstance(carry, tuple) else (carry,), None, n)
    return last if isinstance(carry, tuple) else last[0]


def cond(pred: Value, f: Callable[[], Any], g: Callable[[], Any]) -> Any:
    """Runs one of two bodies; what the other one would write does not happen.

    Args:
        pred: A scalar bool.
        f: Body when true (a function without arguments over values in reach).
        g: Body when false; its results have the same spaces.
    """
    trace: Trace = require_trace("cond")
    if has_leaf(pred, Unknown):
        trace.unknown = True
        return Unknown("cond")
    if not isinstance(pred, Value) or pred.space.axes != () or pred.space.dtype != "bool":
        raise BuildError(
            "cond needs a scalar bool value",
            where=trace.graph.name,
            received=describe(pred),
            fix="reduce it with ops.any or ops.all; use ops.where to choose per element",
        )
    if_true, if_false = trace.body("true", f, ()), trace.body("false", g, ())
    for body in (if_true, if_false):
        _forbid_host(body, "cond")
        if body.metrics:
            raise BuildError(
                "a metric is reported inside cond",
                where=trace.graph.name,
                fix="return the number, and report it outside",
            )
    _same_spaces(spaces_of(if_true.outputs), spaces_of(if_false.outputs), "branches of a cond", trace)
    node = Cond(label=f"{trace.graph.name}.cond", args=(pred,), if_true=if_true, if_false=if_false)
    _look_into(trace, node)
    node.result = make_result(node, spaces_of(if_true.outputs))
    trace.emit(node)
    return node.result


def while_(test: Callable[..., Value], body: Callable[..., Any], carry: Structure) -> Any:
    """Loops while `test(carry)`: `carry = body(carry)`. It cannot be differentiated; `scan` can.

    Args:
        test: Function of the carry that returns a scalar bool value; it writes nothing.
        body: Function of the carry that returns the new one, of the same spaces.
        carry: Nested values.
    """
    trace: Trace = require_trace("while_")
    if has_leaf(carry, Unknown):
        trace.unknown = True
        return Unknown("while_")
    carry = lift(carry)
    tests, step = trace.body("test", test, (spaces_of(carry),)), trace.body("body", body, (spaces_of(carry),))
    for graph in (tests, step):
        _forbid_host(graph, "while_")
        if graph.metrics:
            raise BuildError("a metric is reported inside while_", where=trace.graph.name, fix="report it outside")
    tested = tests.outputs
    if not isinstance(tested, Value) or tested.space.axes != () or tested.space.dtype != "bool":
        raise BuildError(
            "the test of a while loop has to return a scalar bool",
            where=trace.graph.name,
            received=describe(tested),
            fix="reduce it with ops.any or ops.all",
        )
    if tests.writes:
        raise BuildError(
            "the test of a while loop writes variables",
            where=trace.graph.name,
            received=str(tests.writes),
            fix="write them in the body",
        )
    _same_spaces(spaces_of(carry), spaces_of(step.outputs), "carry of a while loop", trace)
    node = While(label=f"{trace.graph.name}.while", args=(carry,), test=tests, body=step)
    _look_into(trace, node)
    node.result = make_result(node, spaces_of(carry))
    trace.emit(node)
    return node.result


def vmap(
    method: Callable[..., Any], in_axes: int | Sequence[int | None] | None = 0, axis_size: int | None = None
) -> Callable[..., Any]:
    """One API method over a new leading axis: populations, ensembles, replicas.

    Args:
        method: API method or plain function over values; it writes no variables.
        in_axes: For each argument the axis to map over, or None to repeat it.
        axis_size: Length of the axis; needed where it cannot be read from an argument.

    Returns:
        A function of the arguments; its results have the new axis in front.
    """

    def mapped(*args: Structure) -> Any:
        trace: Trace = require_trace("vmap")
        if has_leaf(args, Unknown):
            trace.unknown = True
            return Unknown("vmap")
        axes = tuple(in_axes) if isinstance(in_axes, Sequence) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise BuildError(
                "vmap has not one axis per argument",
                where=trace.graph.name,
                received=f"in_axes={axes} for {len(args)} arguments",
                fix="give one axis (or None) for each",
            )
        spaces, sizes = [], set()
        for argument, axis in zip(args, axes, strict=True):
            if axis is None:
                spaces.append(spaces_of(argument))
                continue
            for leaf in leaves_of(argument, Value):
                if not -len(leaf.space.axes) <= axis < len(leaf.space.axes):
                    raise BuildError(
                        "vmap over an axis that a value does not have",
                        where=trace.graph.name,
                        received=f"in_axes={axis} for {leaf.space!r}",
                        fix="choose one of its axes, or None to repeat the value",
                    )
            sizes |= {leaf.space.axes[axis] for leaf in leaves_of(argument, Value)}
            spaces.append(_without_axes(argument, axis))
        size = axis_size if axis_size is not None else next(iter(sizes), None)
        if size is None or any(other != size for other in sizes):
            raise BuildError(
                "vmap needs one axis size",
                where=trace.graph.name,
                received=f"sizes {sorted(map(str, sizes))}, axis_size={axis_size}",
                fix="map over axes of one length, or pass axis_size",
            )
        outer = trace.in_vmap
        trace.in_vmap = True
        try:
            body = trace.body("vmap", method, tuple(spaces))
        finally:
            trace.in_vmap = outer
        _forbid_host(body, "vmap")
        metrics = tuple((metric.name, metric.reduce) for metric in body.metrics)
        metric_values = tuple(metric.value for metric in body.metrics)
        body.outputs, body.metrics = (body.outputs, metric_values), []
        node = VMap(label=f"{trace.graph.name}.vmap", args=args, body=body, in_axes=axes, axis_size=size)
        _look_into(trace, node)
        node.result = make_result(node, tree_map(lambda leaf: _with_first(leaf, size), spaces_of(body.outputs)))
        trace.emit(node)
        _reduce_metrics(trace, metrics, node.result[1])
        return node.result[0]

    return mapped


# -- details -----------------------------------------------------------------------------------------------------


def _look_into(trace: Trace, node: Node) -> None:
    """Notes what the bodies of a node read and write, and refuses gradients in them that lead out."""
    bodies = node.bodies.values()
    node.writes = unique(path for body in bodies for path in body.writes)
    # what a branch not taken, or a loop without steps, does not write keeps its value: so that is read, too
    node.reads = unique((*(path for body in bodies for path in body.reads), *node.writes))
    node.row_writes = unique(p for inner in inner_nodes(node) for p in inner.row_writes)
    node.alias_variables = unique(p for inner in inner_nodes(node) for p in inner.alias_variables)
    node.aliases = True
    check_bodies(trace, node)


def _forbid_host(body: Graph, kind: str) -> None:
    for node in body.nodes:
        if node.host:
            raise BuildError(
                f"a host node inside {kind}",
                where=node.label,
                fix="call it before or after, and pass its results in",
            )


def _arrays_to_values(structure: Structure) -> Structure:
    """Constant arrays become values (to be looped over, say); other leaves stay."""
    return tree_map(lambda leaf: lift(leaf) if isinstance(leaf, np.ndarray) else leaf, structure)


def _without_axis(space: Box, axis: int) -> Box:
    axes = list(space.axes)
    del axes[axis]
    return from_axes(tuple(axes), space.dtype)


def _without_axes(structure: Structure, axis: int) -> Structure:
    return tree_map(lambda leaf: _without_axis(leaf.space, axis) if isinstance(leaf, Value) else leaf, structure)


def _without_first(value: Value) -> Box:
    if not value.space.axes:
        raise BuildError("scan over a value without axes", received=repr(value.space), fix="pass it in the carry")
    return _without_axis(value.space, 0)


def _with_first(space: Any, size: int | Dim) -> Any:
    return from_axes((size, *space.axes), space.dtype) if isinstance(space, Box) else space


def _same_spaces(before: Structure, after: Structure, what: str, trace: Trace) -> None:
    def plain(structure: Structure) -> Any:
        return tree_map(lambda s: (s.axes, s.dtype) if isinstance(s, Box) else s, structure)

    if plain(before) != plain(after):
        raise BuildError(
            f"the {what} must have the same spaces",
            where=trace.graph.name,
            received=f"{before!r} and {after!r}",
            fix="return values of the same shapes and dtypes (ops.astype, ops.reshape)",
        )


def _reduce_metrics(trace: Trace, metrics: tuple[tuple[str, str], ...], values: Sequence[Value]) -> None:
    for (name, reduce), value in zip(metrics, values, strict=True):
        reduced = trace.call_internal(_REDUCTIONS[reduce], f"metric_{reduce}", (value,))
        trace.metric(name, reduced, reduce)


def _mean(x: Any) -> Any:
    return ops.mean(x)


def _sum(x: Any) -> Any:
    return ops.sum(x)


def _last(x: Any) -> Any:
    return x[-1]


_REDUCTIONS = {"mean": _mean, "sum": _sum, "last": _last}

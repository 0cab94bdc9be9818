"""Loops and branches over nested arrays, as TensorFlow's own: `tf.while_loop`, `tf.cond`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlweave.backends.python_loops import in_order_of, row_builder
from rlweave.extensions.tensorflow_.array import Array, OpenAxisError, TensorFlowArray, tensor_of
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.tree import tree_leaves, tree_map

#: Shape (None: open) and dtype of each row of a result, in the order of its leaves.
Rows = Sequence[tuple[tuple[int | None, ...], str]]


def watched_graph(name: str) -> Any:
    """A graph to trace into, whose attribute `bodies` gets the graphs of the loops and branches in it."""
    graph = tf.__internal__.FuncGraph(name)
    graph.bodies = []
    return graph


def _watch() -> None:
    """Notes the graph that is being traced, where one around it wants to know."""
    graph = around = tf.compat.v1.get_default_graph()
    while around is not None:
        if hasattr(around, "bodies"):
            around.bodies.append(graph)
        around = getattr(around, "outer_graph", None)


def as_arrays(tree: Any) -> Any:
    """A tree whose leaves are all arrays: its numbers, too."""
    return tree_map(lambda leaf: leaf if isinstance(leaf, TensorFlowArray) else TensorFlowArray(tensor_of(leaf)), tree)


def tensors(tree: Any) -> list[Any]:
    """The tensors of a tree, in order."""
    return [tensor_of(leaf) for leaf in tree_leaves(tree)]


def rebuilt(tree: Any, leaves: Sequence[Any]) -> Any:
    """A tree of the same structure with these tensors as leaves."""
    return row_builder(tree)(tuple([TensorFlowArray(leaf) for leaf in leaves]))


def loop(test: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    """`while test(state): state = body(state)`; state is a tree whose shapes stay what they are at the start."""
    start = tensors(state)
    if not start:
        raise OpenAxisError("whether a loop without a state ends")
    shapes = [x.shape for x in start]

    def step(*leaves: Any) -> list[Any]:
        _watch()
        after = tensors(in_order_of(state, body(rebuilt(state, leaves))))
        for x, before in zip(after, shapes, strict=True):
            # a body that knows less of a shape than the start would be refused
            x.set_shape(before)
        return after

    last = tf.while_loop(
        lambda *leaves: tensor_of(test(rebuilt(state, leaves)), tf.bool), step, start, shape_invariants=shapes
    )
    return rebuilt(state, last)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    rows: Rows | None = None,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` over the slices of xs.

    Args:
        f: The step.
        init: The first carry.
        xs: Tree of arrays to slice, or None.
        length: Number of steps; needed without xs.
        reverse: From the last slice to the first.
        rows: What the leaves of y are; None: found by a trial, which traces the step once more.

    Returns:
        (last carry, ys).
    """
    init = as_arrays(init)
    xs = as_arrays(xs)
    inputs = tensors(xs)
    sizes = {n for n in [*(x.shape[0] for x in inputs), length] if isinstance(n, int)}
    if len(sizes) > 1 or (not inputs and length is None):
        raise ValueError(f"scan needs one length: give `length`, or arrays with equal first axes. Received: {sizes}.")
    if sizes:
        steps: Any = sizes.pop()
    else:
        steps = tf.shape(inputs[0])[0] if inputs else tensor_of(length, tf.int32)
    build_x, build_y = row_builder(xs), _Structure()
    if isinstance(steps, int) and steps == 0:
        # one step on zeros, not counted, shows what y looks like
        _, y = f(init, build_x(tuple([TensorFlowArray(tf.zeros(x.shape[1:], x.dtype)) for x in inputs])))
        empty = [tf.zeros(tf.concat([[0], tf.shape(leaf)], 0), leaf.dtype) for leaf in tensors(y)]
        return init, rebuilt(y, empty)
    if rows is None:
        rows = _trial(f, init, [tf.TensorSpec(x.shape[1:], x.dtype) for x in inputs], build_x)
    rows = [(shape, tf.as_dtype(dtype)) for shape, dtype in rows]
    lists = [tf.TensorArray(dtype, steps, element_shape=shape) for shape, dtype in rows]
    start = tensors(init)
    shapes = [x.shape for x in start]

    def step(i: Any, carry: Any, outputs: Any) -> Any:
        _watch()
        at = steps - 1 - i if reverse else i
        x = build_x(tuple([TensorFlowArray(tf.gather(x, at)) for x in inputs]))
        after, y = f(rebuilt(init, carry), x)
        build_y.tree = y
        leaves = tensors(in_order_of(init, after))
        for leaf, before in zip(leaves, shapes, strict=True):
            leaf.set_shape(before)
        return i + 1, leaves, [out.write(at, leaf) for out, leaf in zip(outputs, tensors(y), strict=True)]

    _, carry, outputs = tf.while_loop(
        lambda i, *_: i < steps,
        step,
        (tf.constant(0), start, lists),
        shape_invariants=(tf.TensorShape(()), shapes, [tf.TensorShape(None) for _ in lists]),
        maximum_iterations=steps,
    )
    stacked = [out.stack() for out in outputs]
    if isinstance(steps, int):
        for x in stacked:
            x.set_shape((steps, *x.shape[1:]))
    return rebuilt(init, carry), rebuilt(build_y.tree, stacked)


class _Structure:
    """Keeps the nesting of what a step returned."""

    tree: Any = None


def _trial(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, row: Sequence[Any], build_x: Any) -> Rows:
    """Shapes and dtypes of y, by tracing a step into a graph that never runs."""
    with tf.__internal__.FuncGraph("trial").as_default():
        carry = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in tensors(init)]
        x = [TensorFlowArray(tf.compat.v1.placeholder(spec.dtype, spec.shape)) for spec in row]
        _, y = f(rebuilt(init, carry), build_x(tuple(x)))
        return [(tuple(leaf.shape.as_list()), leaf.dtype.name) for leaf in tensors(y)]


def cond(pred: Array, f: Callable[[], Any], g: Callable[[], Any]) -> Any:
    """Runs one of two functions; their results have one structure."""
    structure = _Structure()

    def branch(function: Callable[[], Any]) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            _watch()
            result = function()
            structure.tree = result
            return tensors(result)

        return run

    leaves = tf.cond(tensor_of(pred, tf.bool), branch(f), branch(g))
    return rebuilt(structure.tree, leaves if isinstance(leaves, list | tuple) else [leaves])

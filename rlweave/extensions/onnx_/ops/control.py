"""Loops and branches of pure functions as ONNX's Scan and If."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.backends.python_loops import in_order_of, row_builder, scan_loop
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.ops.arrays import asarray, stack, unstack
from rlweave.extensions.onnx_.symbol import EXAMPLES, Size, Symbol
from rlweave.extensions.onnx_.symbolic import Target, model_of
from rlweave.tree import tree_leaves

Array = Any


def as_symbols(model: Model, tree: Any) -> list[Symbol]:
    """The leaves of a tree, constants among them, as values of a model."""

    def symbol(leaf: Any) -> Symbol:
        if isinstance(leaf, Symbol):
            return leaf
        if isinstance(leaf, Size):
            return leaf.as_symbol()
        value = np.asarray(asarray(leaf))
        return Symbol(model, model.constant(value), [value] * EXAMPLES)

    return [symbol(leaf) for leaf in tree_leaves(tree)]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    model = model_of((init, xs))
    if model is None:
        return reference.scan(f, init, xs, length, reverse)
    leaves = tree_leaves(xs)
    open_length = any(isinstance(leaf.shape[0], Size) for leaf in leaves)
    if not open_length:
        return scan_loop(
            f,
            init,
            xs,
            length,
            reverse,
            asarray=lambda x: as_symbols(model, x)[0],
            stack=stack,
            unstack=unstack,
            zeros_like=lambda x: x,
        )
    return _scan(model, f, init, xs, reverse)


def _scan(model: Model, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, reverse: bool) -> tuple[Any, Any]:
    """A loop over an open axis."""
    carry, rows = as_symbols(model, init), as_symbols(model, xs)
    with model.subgraph() as nodes:
        inner = [Symbol(model, model.fresh("carry"), symbol.examples) for symbol in carry]
        row = [Symbol(model, model.fresh("row"), [e[0] for e in symbol.examples]) for symbol in rows]
        found_carry, found = f(row_builder(init)(tuple(inner)), row_builder(xs)(tuple(row)))
        found_carry = in_order_of(init, found_carry)
        after, ys = as_symbols(model, found_carry), as_symbols(model, found)
        # a result of a sub-graph has to be made in it
        names = [(str(model.node("Identity", [symbol.name])), symbol.dtype) for symbol in (*after, *ys)]
    given = [(symbol.name, symbol.dtype, symbol.ndim) for symbol in (*inner, *row)]
    direction = int(reverse)
    outputs = model.node(
        "Scan",
        [symbol.name for symbol in (*carry, *rows)],
        outputs=len(names),
        body=model.graph_of(nodes, given, names),
        num_scan_inputs=len(rows),
        scan_input_directions=[direction] * len(rows),
        scan_output_directions=[direction] * len(ys),
    )
    lengths = [len(example) for example in rows[0].examples]
    results = [Symbol(model, name, symbol.examples) for name, symbol in zip(outputs, after, strict=False)]
    stacked = [
        Symbol(model, name, [np.stack([e] * n) for e, n in zip(y.examples, lengths, strict=True)])
        for name, y in zip(outputs[len(after) :], ys, strict=True)
    ]
    return row_builder(found_carry)(tuple(results)), row_builder(found)(tuple(stacked))


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    model = model_of((pred, args))
    if model is None or not isinstance(pred, Symbol):
        return reference.cond(pred, f, g, *args)
    return branch(pred, lambda: f(*args), lambda: g(*args))


def branch(pred: Symbol, f: Callable[[], Any], g: Callable[[], Any]) -> Any:
    """One of two results."""
    model = pred.model
    structure: Any = None
    bodies: list[Any] = []
    results: list[list[Symbol]] = []
    for function in (f, g):
        with model.subgraph() as nodes:
            structure = in_order_of(structure, function()) if bodies else function()
            symbols = as_symbols(model, structure)
            names = [(str(model.node("Identity", [symbol.name])), symbol.dtype) for symbol in symbols]
        bodies.append(model.graph_of(nodes, [], names))
        results.append(symbols)
    if not results[0]:
        return structure
    condition = Target(model, pred.examples[0]).name(pred, np.bool_)
    outputs = model.node("If", [condition], outputs=len(results[0]), then_branch=bodies[0], else_branch=bodies[1])
    found = [Symbol(model, name, symbol.examples) for name, symbol in zip(outputs, results[0], strict=True)]
    return row_builder(structure)(tuple(found))


def stop_gradient(x: Array, /) -> Array:
    return x if model_of(x) is not None else reference.stop_gradient(x)

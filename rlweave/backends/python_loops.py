"""Loops in Python, for backends whose framework brings none of its own, and the nesting of what loops carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlweave.backends.base import Cell, untouched
from rlweave.tree import tree_leaves, tree_map


def in_order_of(first: Any, tree: Any) -> Any:
    """The same tree with its dicts in the order of those of an equally nested one.

    A carry of `{"a", "b"}` may come back as `{"b", "a"}`; loops of some backends know leaves by their places only.
    """
    return tree_map(lambda _, leaf: leaf, first, tree)


def row_builder(tree: Any) -> Callable[[tuple[Any, ...]], Any]:
    """A function that puts leaves (in the order of `tree_leaves`) into the structure of a tree.

    The usual structures, one array or a tuple of arrays, take no time.
    """
    if isinstance(tree, (dict, list)) or hasattr(tree, "_fields"):
        return lambda leaves: _rebuilt(tree, leaves)
    if isinstance(tree, tuple):
        if any(item is None or isinstance(item, (dict, list, tuple)) for item in tree):
            return lambda leaves: _rebuilt(tree, leaves)
        return lambda leaves: leaves
    return lambda leaves: leaves[0] if leaves else None


def _rebuilt(tree: Any, leaves: tuple[Any, ...]) -> Any:
    remaining = iter(leaves)
    return tree_map(lambda leaf: next(remaining), tree)


def scan_loop(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    asarray: Callable[[Any], Any],
    stack: Callable[[list[Any]], Any],
    unstack: Callable[[Any], Any],
    zeros_like: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """`ops.scan` as a Python loop.

    Args:
        f: The step, `carry, y = f(carry, x)`.
        init: The first carry.
        xs: Tree of arrays to slice, or None.
        length: Number of steps, or None to read it from xs.
        reverse: From the last slice to the first.
        asarray: Makes numbers into arrays of the backend.
        stack: Joins arrays along a new first axis.
        unstack: Cuts an array along its first axis. (All slices at once: in torch the gradient of T single slices is T
            full-size arrays.)
        zeros_like: Zeros of an array's shape; used to learn the structure of y for a scan over no steps.

    Raises:
        ValueError: Neither xs nor length is given, or they disagree.
    """
    leaves = tree_leaves(xs)
    sizes = {leaf.shape[0] for leaf in leaves} | ({length} if length is not None else set())
    if len(sizes) != 1:
        raise ValueError(f"scan needs one length: give `length`, or arrays with equal first axes. Received: {sizes}.")
    steps = sizes.pop()
    carry = tree_map(asarray, init)
    row = row_builder(xs)
    if steps == 0:
        # One step on zeros, not counted, shows what y looks like.
        _, y = f(carry, row(tuple(zeros_like(leaf.sum(0)) for leaf in leaves)))
        return carry, tree_map(lambda leaf: stack([zeros_like(asarray(leaf))])[:0], y)
    rows = list(zip(*[unstack(leaf) for leaf in leaves], strict=True)) if leaves else [()] * steps
    ys: list[Any] = [None] * steps
    for i in range(steps - 1, -1, -1) if reverse else range(steps):
        carry, ys[i] = f(carry, row(rows[i]))
    carry = tree_map(asarray, carry)
    if ys[0] is None:
        return carry, None
    return carry, tree_map(lambda *items: stack([asarray(item) for item in items]), *ys)


def python_scan(
    stack: Callable[[Any], Any],
    zero_row: Callable[[Any], Any],
    copy: Callable[[Any], Any],
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    xs: Any,
    length: int | None,
    written: Sequence[Cell],
) -> Any:
    """`graph.scan` as a Python loop: cells are written as it goes.

    Args:
        stack: Joins rows along a new first axis.
        zero_row: A row of zeros of an array that has none.
        copy: A fresh array, for the trial step of a loop over nothing.
        body: `carry, y = body(carry, x)`.
        carry: The first carry.
        xs: What is looped over, or None.
        length: The number of steps, where there are no xs.
        written: The cells that the body writes.
    """
    leaves = tree_leaves(xs)
    steps = leaves[0].shape[0] if leaves else length
    assert steps is not None
    if steps == 0:
        with untouched(written, copy):
            _, y = body(carry, tree_map(zero_row, xs))
        return carry, tree_map(lambda leaf: stack([leaf])[:0], y)
    outputs = []
    for step in range(steps):
        carry, y = body(carry, tree_map(lambda x, step=step: x[step], xs))
        outputs.append(y)
    return carry, tree_map(lambda *ys: stack(ys), *outputs)


def python_while(test: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, written: Sequence[Cell]) -> Any:
    """`graph.while_` as a Python loop."""
    while bool(test(carry)):
        carry = body(carry)
    return carry

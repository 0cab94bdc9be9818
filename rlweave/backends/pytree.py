"""Trees of arrays (dicts, tuples, lists, None) for backends whose framework brings no tree functions of its own.

Plain recursion: `torch.compile` traces through it, and small trees cost less than a general library's registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Applies f to the leaves of one tree, or of several of equal structure; None stays None."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: tree_map(f, value, *[other[key] for other in rest]) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [tree_map(f, *values) for values in zip(tree, *rest, strict=True)]
        if isinstance(tree, list):
            return items
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return f(tree, *rest)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves in order."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in tree_leaves(value)]
    return [tree]


def scan_loop(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    asarray: Callable[[Any], Any],
    stack: Callable[[list[Any]], Any],
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
        zeros_like: Zeros of an array's shape; used to learn the structure of y for a scan over no steps.

    Raises:
        ValueError: Neither xs nor length is given, or they disagree.
    """
    sizes = {leaf.shape[0] for leaf in tree_leaves(xs)} | ({length} if length is not None else set())
    if len(sizes) != 1:
        raise ValueError(f"scan needs one length: give `length`, or arrays with equal first axes. Received: {sizes}.")
    steps = sizes.pop()
    carry = tree_map(asarray, init)
    if steps == 0:
        probe = tree_map(lambda leaf: zeros_like(leaf.sum(0)), xs)
        _, y = f(carry, probe)
        return carry, tree_map(lambda leaf: stack([zeros_like(asarray(leaf))])[:0], y)
    ys: list[Any] = [None] * steps
    for i in range(steps - 1, -1, -1) if reverse else range(steps):
        carry, ys[i] = f(carry, tree_map(lambda leaf, i=i: leaf[i], xs))
    carry = tree_map(asarray, carry)
    if ys[0] is None:
        return carry, None
    return carry, tree_map(lambda *leaves: stack([asarray(leaf) for leaf in leaves]), *ys)

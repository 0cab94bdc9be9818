"""Loops, branches and gradients of pure functions of arrays.

Trees are arrays nested in dicts, tuples and lists; None stands for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.ops.dispatch import Array, implementation


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Runs `carry, y = f(carry, x)` over the slices of `xs` along axis 0.

    Args:
        f: A pure function; carry keeps its structure, shapes and dtypes.
        init: The first carry, a tree.
        xs: A tree of arrays with equal first axes, or None.
        length: The number of steps; needed only where `xs` is None.
        reverse: Go from the last slice to the first. The y of a slice stands at that slice's place either way.

    Returns:
        The last carry, and the ys stacked along axis 0.
    """
    return implementation(init, xs).scan(f, init, xs, length, reverse)


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    """f(*args) if `pred` else g(*args).

    Args:
        pred: A bool or a bool array without axes.
        f: A pure function of `args`, a tree of results.
        g: The same for the other case, with results of equal structure, shapes and dtypes.
        *args: Trees of arrays.

    Where a backend cannot branch on a value (torch inside `vmap` or `torch.compile`) both run and one is selected.
    """
    return implementation(pred, args).cond(pred, f, g, *args)


def stop_gradient(x: Array, /) -> Array:
    """The same x, as a constant for differentiation."""
    return implementation(x).stop_gradient(x)

"""Discounted sums by doubling, for backends on which a loop over time costs more than log2(T) steps of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any


def check_decays(x: Array, decays: Array) -> None:
    """Checks that each element has a decay; by broadcasting, those of rows could be taken for those of columns.

    Raises:
        ValueError: Shapes differ, as far as they are known.
    """
    pairs = zip(x.shape, decays.shape, strict=False)
    differ = [a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    if len(x.shape) != len(decays.shape) or any(differ):
        raise ValueError(f"discounted_sums needs a decay for each element. Shapes: {x.shape} and {decays.shape}.")


def doubling(
    array_of: Callable[[Any], Array], concat: Callable[..., Array], zeros_like: Callable[[Array], Array]
) -> Callable[[Array, Array], Array]:
    """`ops.discounted_sums` of a backend, made of its conversion, two of its operators, slices and arithmetic.

    Row t first holds its own x, then the sum of 2, 4, 8... rows. A loop over time costs torch 7 us a row, and a GPU a
    kernel a row.
    """

    def discounted_sums(x: Array, decays: Array) -> Array:
        x, decays = array_of(x), array_of(decays)
        check_decays(x, decays)
        reach, length = 1, x.shape[0]
        while reach < length:
            x = concat([x[:-reach] + decays[:-reach] * x[reach:], x[-reach:]], axis=0)
            if 2 * reach < length:
                decays = concat([decays[:-reach] * decays[reach:], zeros_like(decays[-reach:])], axis=0)
            reach *= 2
        return x

    return discounted_sums

"""Discounted sums by doubling, for backends on which a loop over time costs more than log2(T) steps of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any


def doubling(
    array_of: Callable[[Any], Array], concat: Callable[..., Array], zeros_like: Callable[[Array], Array]
) -> Callable[[Array, Array], Array]:
    """`ops.discounted_sums` of a backend, made of its conversion, two of its operators, slices and arithmetic.

    Row t first holds its own x, then the sum of 2, 4, 8... rows. A loop over time costs torch 7 us a row, and a GPU a
    kernel a row.
    """

    def discounted_sums(x: Array, decays: Array) -> Array:
        x, decays = array_of(x), array_of(decays)
        reach, length = 1, x.shape[0]
        while reach < length:
            x = concat([x[:-reach] + decays[:-reach] * x[reach:], x[-reach:]], axis=0)
            if 2 * reach < length:
                decays = concat([decays[:-reach] * decays[reach:], zeros_like(decays[-reach:])], axis=0)
            reach *= 2
        return x

    return discounted_sums

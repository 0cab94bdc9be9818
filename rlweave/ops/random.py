"""Random operators. They draw from the random state of a built graph, so they exist only inside graph functions.

When a graph is lowered, `ops.random` in its graph functions is bound to that graph's random source (a `FastRandom` of
the backend, or the `PortableRandom` that gives the same numbers everywhere). All shapes are tuples of ints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from rlweave.errors import ExecutionError
from rlweave.ops.dispatch import Array

RANDOM_NAMES = ("uniform", "normal", "randint", "bernoulli", "categorical", "permutation", "gumbel")


def _outside(name: str) -> NoReturn:
    raise ExecutionError(
        f"ops.random.{name} was called outside a graph; only a built graph has a random state to draw from.",
        where=f"ops.random.{name}",
        fix="call it in a @graph_fn of a component and run that through build(...) or ComponentTest; "
        "in plain NumPy code use numpy.random.Generator",
    )


def uniform(shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
    """float32 numbers, evenly distributed over [low, high).

    Rounding can give `high` itself where low is not 0. The bounds are numbers or arrays that broadcast to the shape; so
    are the parameters of `normal`.
    """
    _outside("uniform")


def normal(shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
    """float32 numbers, normally distributed."""
    _outside("normal")


def randint(shape: Sequence[int], low: Array, high: Array) -> Array:
    """int32 numbers of {low, ..., high - 1}; the bounds are ints or integer arrays that broadcast to the shape."""
    _outside("randint")


def bernoulli(p: Array) -> Array:
    """True with probability p, as bool of the shape of p."""
    _outside("bernoulli")


def categorical(logits: Array) -> Array:
    """A class index (int32) per row of unnormalized log-probabilities: (..., N) -> (...). -inf is never drawn."""
    _outside("categorical")


def permutation(n: int) -> Array:
    """The numbers 0..n-1 in random order, int32 (n,)."""
    _outside("permutation")


def gumbel(shape: Sequence[int]) -> Array:
    """float32 numbers with the standard Gumbel distribution, -log(-log(u))."""
    _outside("gumbel")

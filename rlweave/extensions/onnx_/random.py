"""Random numbers of the onnx backend: those of NumPy, drawn on the host (see `draws`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.backends.numpy_ import random as numpy_random
from rlweave.backends.numpy_.random import initial_state, state_from_numpy, state_to_numpy
from rlweave.backends.portable_random import PortableRandom
from rlweave.extensions.onnx_.draws import Draws
from rlweave.extensions.onnx_.ops.elementwise import add, less, multiply, subtract
from rlweave.extensions.onnx_.ops.reductions import argmax
from rlweave.extensions.onnx_.symbol import Size, Symbol
from rlweave.extensions.onnx_.symbolic import model_of, no_form

__all__ = ["FastRandom", "PortableOnHost", "initial_state", "source_of", "state_from_numpy", "state_to_numpy"]

Array = Any


class _OnHost:
    """`ops.random` where the numbers come from a source of NumPy.

    Args:
        cell: Holds the random state in its attribute `value`; `Draws` while a model is written.
        source: NumPy's source of random numbers over the same cell.
    """

    def __init__(self, cell: Any, source: Any) -> None:
        self.cell, self._source = cell, source

    @property
    def _draws(self) -> Draws | None:
        value = self.cell.value
        return value if isinstance(value, Draws) else None

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        draws = self._draws
        if draws is None:
            return self._source.uniform(shape, low, high)
        draw = draws.add(_uniform, shape)
        if isinstance(low, int | float) and isinstance(high, int | float) and low == 0.0 and high == 1.0:
            return draw
        return add(low, multiply(draw, subtract(high, low)))

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        draws = self._draws
        if draws is None:
            return self._source.normal(shape, mean, std)
        draw = draws.add(_normal, shape)
        if isinstance(mean, int | float) and isinstance(std, int | float) and mean == 0.0 and std == 1.0:
            return draw
        return add(mean, multiply(draw, std))

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`."""
        draws = self._draws
        if draws is None:
            return self._source.randint(shape, low, high)
        if model_of((low, high)) is not None:
            raise no_form("ops.random.randint with bounds that are computed")
        return draws.add(lambda source, sizes: source.randint(sizes, low, high), shape)

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        draws = self._draws
        if draws is None:
            return self._source.bernoulli(p)
        return less(draws.add(_uniform, p.shape if isinstance(p, Symbol) else np.shape(p)), p)

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. The largest of logits plus Gumbel noise wins."""
        draws = self._draws
        if draws is None:
            return self._source.categorical(logits)
        return argmax(add(logits, draws.add(_gumbel, logits.shape)), axis=-1)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`."""
        draws = self._draws
        if draws is None:
            return self._source.permutation(n)
        shape: tuple[int | Size, ...] = (n,)
        return draws.add(lambda source, sizes: source.permutation(sizes[0]), shape)

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        draws = self._draws
        return self._source.gumbel(shape) if draws is None else draws.add(_gumbel, shape)


class FastRandom(_OnHost):
    """`ops.random` on ONNX Runtime with NumPy's own generator.

    Args:
        cell: Holds the state, a `numpy.random.Generator`; `Draws` while a model is written.
    """

    def __init__(self, cell: Any) -> None:
        super().__init__(cell, numpy_random.FastRandom(cell))


class PortableOnHost(_OnHost):
    """`ops.random` on ONNX Runtime with the generator that gives the same numbers everywhere.

    Args:
        cell: Holds the state, int32 (3,); `Draws` while a model is written.
    """

    def __init__(self, cell: Any) -> None:
        super().__init__(cell, PortableRandom(numpy_ops, cell))


def source_of(cell: Any) -> Any:
    """NumPy's source of random numbers for the state in a cell."""
    fast = isinstance(cell.value, np.random.Generator)
    return numpy_random.FastRandom(cell) if fast else PortableRandom(numpy_ops, cell)


def _uniform(source: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(source.uniform(shape))


def _normal(source: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(source.normal(shape))


def _gumbel(source: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(source.gumbel(shape))

"""Random numbers of the onnx backend: those of NumPy's generator (see `draws`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import random as reference
from rlweave.backends.numpy_.random import initial_state, state_from_numpy, state_to_numpy
from rlweave.backends.onnx_.draws import Draws
from rlweave.backends.onnx_.ops.elementwise import add, less, multiply, subtract
from rlweave.backends.onnx_.ops.reductions import argmax
from rlweave.backends.onnx_.symbol import Symbol
from rlweave.backends.onnx_.symbolic import model_of, no_form

__all__ = ["FastRandom", "initial_state", "state_from_numpy", "state_to_numpy"]

Array = Any
Shape = tuple[int, ...]


class FastRandom:
    """`ops.random` on ONNX Runtime.

    Args:
        cell: Holds the state, a `numpy.random.Generator`, in its attribute `value`; `Draws` while a model is written.
    """

    def __init__(self, cell: Any) -> None:
        self.cell = cell
        self._numpy = reference.FastRandom(cell)

    @property
    def _draws(self) -> Draws | None:
        value = self.cell.value
        return value if isinstance(value, Draws) else None

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        draws = self._draws
        if draws is None:
            return self._numpy.uniform(shape, low, high)
        draw = draws.add(_uniform, shape)
        if isinstance(low, int | float) and isinstance(high, int | float) and low == 0.0 and high == 1.0:
            return draw
        return add(low, multiply(draw, subtract(high, low)))

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        draws = self._draws
        if draws is None:
            return self._numpy.normal(shape, mean, std)
        draw = draws.add(_normal, shape)
        if isinstance(mean, int | float) and isinstance(std, int | float) and mean == 0.0 and std == 1.0:
            return draw
        return add(mean, multiply(draw, std))

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`."""
        draws = self._draws
        if draws is None:
            return self._numpy.randint(shape, low, high)
        if model_of((low, high)) is not None:
            raise no_form("ops.random.randint with bounds that are computed")
        return draws.add(lambda generator, sizes: generator.integers(low, high, sizes, np.int32), shape)

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        draws = self._draws
        if draws is None:
            return self._numpy.bernoulli(p)
        return less(draws.add(_uniform, np.shape(p) if not isinstance(p, Symbol) else p.shape), p)

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. Drawn as a race: the largest of logits plus Gumbel noise wins."""
        draws = self._draws
        if draws is None:
            return self._numpy.categorical(logits)
        return argmax(subtract(logits, draws.add(_race, logits.shape)), axis=-1)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`."""
        draws = self._draws
        if draws is None:
            return self._numpy.permutation(n)
        return draws.add(lambda generator, sizes: generator.permutation(sizes[0]).astype(np.int32), (n,))

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        draws = self._draws
        if draws is None:
            return self._numpy.gumbel(shape)
        return draws.add(lambda generator, sizes: -_race(generator, sizes), shape)


def _uniform(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.random(shape, np.float32)


def _normal(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


def _race(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return np.log(np.maximum(generator.standard_exponential(shape, np.float32), reference._TINY))

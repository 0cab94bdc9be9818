"""Random numbers of NumPy's own generator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.errors import CheckpointError
from rlweave.strict_json import to_json

Array = Any

# Exponential draws of 0 happen (once in 2^23) and their logarithm is infinite.
_TINY = np.float32(1e-30)


class FastRandom:
    """`ops.random` on NumPy.

    Args:
        cell: Holds the state, a `numpy.random.Generator`, in its attribute `value`. Draws advance it in place.
    """

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        draw = self.cell.value.random(tuple(shape), np.float32)
        if isinstance(low, int | float) and isinstance(high, int | float) and low == 0.0 and high == 1.0:
            return draw
        return low + draw * (high - low)

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        draw = self.cell.value.standard_normal(tuple(shape), np.float32)
        if isinstance(mean, int | float) and isinstance(std, int | float) and mean == 0.0 and std == 1.0:
            return draw
        return mean + draw * std

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`."""
        return self.cell.value.integers(low, high, tuple(shape), np.int32)

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        return self.cell.value.random(np.shape(p), np.float32) < p

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. Drawn as a race: the largest of logits plus Gumbel noise wins."""
        race = np.log(np.maximum(self.cell.value.standard_exponential(logits.shape, np.float32), _TINY))
        return (logits - race).argmax(-1).astype(np.int32)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`."""
        return self.cell.value.permutation(n).astype(np.int32)

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        return -np.log(np.maximum(self.cell.value.standard_exponential(tuple(shape), np.float32), _TINY))


def initial_state(seed: int) -> np.random.Generator:
    """A generator (PCG64) started from a seed."""
    return np.random.Generator(np.random.PCG64(seed))


def state_to_numpy(state: np.random.Generator) -> np.ndarray:
    """The generator's state as bytes (uint8) of JSON: data only, nothing to unpickle."""
    text = to_json(state.bit_generator.state)
    return np.frombuffer(text.encode(), np.uint8).copy()


def state_from_numpy(array: np.ndarray) -> np.random.Generator:
    """A new generator in the state that `state_to_numpy` wrote.

    Raises:
        CheckpointError: The bytes do not describe the state of a PCG64 generator.
    """
    try:
        state = json.loads(np.asarray(array, np.uint8).tobytes())
        bit_generator = np.random.PCG64()
        bit_generator.state = state
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError("These bytes are not the state of a NumPy random generator (PCG64).") from error
    return np.random.Generator(bit_generator)

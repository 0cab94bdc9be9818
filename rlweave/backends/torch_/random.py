"""Random numbers of torch's own generator. Not for `torch.compile`, which refuses generators: use portable mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlweave.backends.torch_.ops import asarray

Array = Any

_TINY = 1e-30
_LARGE = 2**62


class FastRandom:
    """`ops.random` on torch.

    Args:
        cell: Holds the state, a `torch.Generator`, in its attribute `value`. Draws advance it in place.
    """

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def _uniform(self, shape: Sequence[int]) -> Tensor:
        generator = self.cell.value
        return torch.rand(tuple(shape), generator=generator, dtype=torch.float32, device=generator.device)

    def _log_exponential(self, shape: Sequence[int]) -> Tensor:
        generator = self.cell.value
        draw = torch.empty(tuple(shape), dtype=torch.float32, device=generator.device)
        return draw.exponential_(generator=generator).clamp_min(_TINY).log()

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        draw = self._uniform(shape)
        if isinstance(low, int | float) and isinstance(high, int | float) and low == 0.0 and high == 1.0:
            return draw
        return low + draw * (high - low)

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        generator = self.cell.value
        draw = torch.randn(tuple(shape), generator=generator, dtype=torch.float32, device=generator.device)
        if isinstance(mean, int | float) and isinstance(std, int | float) and mean == 0.0 and std == 1.0:
            return draw
        return mean + draw * std

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`."""
        generator = self.cell.value
        if isinstance(low, int) and isinstance(high, int):
            return torch.randint(
                low, high, tuple(shape), generator=generator, dtype=torch.int32, device=generator.device
            )
        # torch.randint knows no tensor bounds. With 62 bits the remainder is as good as even.
        bits = torch.randint(0, _LARGE, tuple(shape), generator=generator, device=generator.device)
        low = asarray(low, "int64")
        return (low + bits % (asarray(high, "int64") - low)).to(torch.int32)

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        p = asarray(p)
        return self._uniform(p.shape) < p

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. Drawn as a race: the largest of logits plus Gumbel noise wins."""
        return torch.argmax(logits - self._log_exponential(logits.shape), -1).to(torch.int32)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`."""
        generator = self.cell.value
        return torch.randperm(n, generator=generator, dtype=torch.int32, device=generator.device)

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        return -self._log_exponential(shape)


def initial_state(seed: int) -> torch.Generator:
    """A generator on the CPU, started from a seed."""
    # SeedSequence spreads small seeds over all bits, which torch's Mersenne Twister asks for.
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1))


def state_to_numpy(state: torch.Generator) -> np.ndarray:
    """The generator's state as bytes (uint8)."""
    return state.get_state().numpy().copy()


def state_from_numpy(array: np.ndarray) -> torch.Generator:
    """A new generator in the state that `state_to_numpy` wrote."""
    generator = torch.Generator()
    generator.set_state(torch.tensor(array, dtype=torch.uint8))
    return generator

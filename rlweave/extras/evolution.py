"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864): shared noise, centred ranks, mirrored sampling."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave import ops
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import AT_LEAST_ONE, POSITIVE
from rlweave.spaces import FloatBox

#: Numbers of the table that are gathered at once: 16 MiB.
_CHUNK = 2**22


@functools.lru_cache(maxsize=2)
def noise_table(size: int, seed: int) -> npt.NDArray[np.float32]:
    """Standard normal numbers, (size,): the same in every process, and made once in each. They cannot be written."""
    table = np.random.default_rng(seed).standard_normal(size, np.float32)
    table.setflags(write=False)
    return table


@register("noise_table")
class NoiseTable(Component):
    """Noise that all processes share without ever sending it: an offset stands for a vector.

    A perturbation of `length` numbers is the part of the table that begins at an offset. The table is a function of
    size and seed, so it is in no checkpoint. It lies on the host; perturbations overlap, which is harmless as long as
    the table is much longer than one (the paper's has 250 million numbers).

    Args:
        size: Numbers in the table.
        seed: Seed of the table.
        scope: Name within the owner.
    """

    def __init__(self, size: int, seed: int = 0, scope: str = "noise") -> None:
        super().__init__(scope, device="host")
        AT_LEAST_ONE.check("size", size, scope)
        self.size, self.seed = size, seed

    @api(static=("length",))
    def rows(self, offsets: Any, length: int) -> Any:
        """Perturbations.

        Args:
            offsets: Where they begin, int32 (B,), each at most `size - length`.
            length: Static. Numbers in each.

        Returns:
            float32 (B, length).
        """
        return self._rows(offsets, length)

    @api(static=("length",))
    def combine(self, offsets: Any, weights: Any, length: int) -> Any:
        """The weighted sum of perturbations, sum_i weights_i * rows_i, without holding all of them at a time.

        Args:
            offsets: Where they begin, int32 (B,).
            weights: float32 (B,).
            length: Static. Numbers in each.

        Returns:
            float32 (length,).
        """
        return self._combine(offsets, weights, length)

    @graph_fn(host=True, differentiable=False, spaces="_rows_space", returns=1)
    def _rows(self, offsets: Any, length: int) -> Any:
        return self._windows(length)[np.asarray(offsets)]

    @graph_fn(host=True, differentiable=False, mixes_batch=True, spaces="_combined_space", returns=1)
    def _combine(self, offsets: Any, weights: Any, length: int) -> Any:
        windows = self._windows(length)
        offsets, weights = np.asarray(offsets), np.asarray(weights, np.float32)
        total = np.zeros(length, np.float32)
        rows = max(1, _CHUNK // length)
        for begin in range(0, len(offsets), rows):
            part = slice(begin, begin + rows)
            total += weights[part] @ windows[offsets[part]]
        return total

    def _windows(self, length: int) -> npt.NDArray[np.float32]:
        """All perturbations as a view of the table, (size - length + 1, length)."""
        return np.lib.stride_tricks.sliding_window_view(noise_table(self.size, self.seed), length)

    def _rows_space(self, offsets: Any, length: int) -> FloatBox:
        if length > self.size:
            raise BuildError(
                "the noise table is shorter than one perturbation",
                where=self.path,
                received=f"{self.size} numbers, where {length} weights are to be perturbed",
                fix=f"choose a size far above {length}",
            )
        return FloatBox(shape=(length,), add_batch_rank=offsets.batch)

    def _combined_space(self, offsets: Any, weights: Any, length: int) -> FloatBox:
        self._rows_space(offsets, length)
        return FloatBox(shape=(length,))


def centred_ranks(returns: Any) -> Any:
    """Ranks of returns, scaled to [-0.5, 0.5]: (N,) to (N,), for N above 1.

    The paper's "fitness shaping": the worst gets -0.5, the best 0.5, and only the order counts. Equal returns share
    the mean of their ranks (the paper's program orders them by chance, which is a gradient of noise alone where many
    episodes reach the highest return).
    """
    ordered = ops.sort(returns)
    below = ops.searchsorted(ordered, returns, "left")
    not_above = ops.searchsorted(ordered, returns, "right")
    ranks = (ops.astype(below + not_above, "float32") - 1.0) / 2.0
    return ranks / (ops.sum(ops.ones_like(ranks)) - 1.0) - 0.5


@register("evolution_strategy")
class EvolutionStrategy(Component):
    """Mirrored sampling around a centre, and the estimate of the gradient of the expected return.

    Each pair of members stands at `centre + sigma * noise` and `centre - sigma * noise`. With F the centred ranks of
    the 2n returns, the gradient ascends along 1 / (2 n sigma) * sum_i (F_i+ - F_i-) noise_i: algorithm 1 of the paper
    with mirrored noise. (The paper's program leaves out sigma, which Adam does not notice.)

    Args:
        sigma: Standard deviation of the perturbations.
        scope: Name within the owner.
    """

    def __init__(self, sigma: float = 0.02, scope: str = "evolution") -> None:
        super().__init__(scope)
        POSITIVE.check("sigma", sigma, scope)
        self.sigma = sigma

    @graph_fn
    def perturb(self, centre: Any, noise: Any, signs: Any) -> Any:
        """Weights of the members of a generation.

        Args:
            centre: Weights of the centre, (D,).
            noise: Standard normal, (B, D).
            signs: 1 or -1, float32 (B,).

        Returns:
            (B, D).
        """
        return centre + self.sigma * ops.expand_dims(signs, -1) * noise

    @graph_fn(mixes_batch=True)
    def weights(self, returns: Any) -> Any:
        """The weight of each perturbation in the gradient.

        Args:
            returns: Of the pairs at `centre + sigma * noise` and `centre - sigma * noise`, (n, 2).

        Returns:
            (n,): the gradient of the expected centred rank is `sum_i weights_i * noise_i`.
        """
        ranks = ops.reshape(centred_ranks(ops.reshape(returns, (-1,))), (-1, 2))
        return (ranks[:, 0] - ranks[:, 1]) / (self.sigma * ops.sum(ops.ones_like(ranks)))

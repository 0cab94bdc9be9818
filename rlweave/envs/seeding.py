"""Seeds of sub-environments and of random actions, all derived from one (seed, worker) pair.

Consecutive seeds (``seed + index``, Gymnasium's own way) make environment 1 of run 0 and environment 0 of run 1
the same environment. Here every sub-environment gets its seed from ``numpy.random.SeedSequence`` keyed by
(seed, worker, environment), so neither runs, nor workers, nor environments overlap.
"""

from __future__ import annotations

import zlib

import numpy as np

EVALUATION_WORKER = 2**31 - 1
"""The worker number that evaluation environments use; no training worker may have it."""

_ACTIONS = 0
_VECTOR = 1


def sub_env_seeds(seed: int | None, worker: int, num_envs: int, first: int = 0) -> list[int]:
    """Returns one seed per sub-environment.

    Args:
        seed: The seed of the run; None takes fresh entropy from the operating system.
        worker: The number of the worker that owns the environments.
        num_envs: The number of sub-environments.
        first: The number of the first of them, where others that stand before have the seeds before.

    Returns:
        ``num_envs`` integers in [0, 2**31): the widest range that every environment library accepts.

    >>> sub_env_seeds(0, worker=0, num_envs=2) == sub_env_seeds(0, worker=0, num_envs=3)[:2]
    True
    """
    entropy = np.random.SeedSequence(seed).entropy
    return [
        _draw(np.random.SeedSequence(entropy, spawn_key=(worker, index))) for index in range(first, first + num_envs)
    ]


def action_seed(seed: int | None, worker: int) -> int:
    """Returns the seed of random (warm-up) actions, independent of every sub-environment's seed.

    Args:
        seed: The seed of the run; None takes fresh entropy.
        worker: The number of the worker.
    """
    return _draw(np.random.SeedSequence(seed, spawn_key=(worker, 0, _ACTIONS)))


def vector_seed(seed: int | None, worker: int, first: int = 0) -> int:
    """Returns the one seed of a vector environment that seeds its sub-environments itself.

    Args:
        seed: The seed of the run; None takes fresh entropy.
        worker: The number of the worker.
        first: The number of its first sub-environment.
    """
    return _draw(np.random.SeedSequence(seed, spawn_key=(worker, first, _VECTOR)))


def derived_seed(seed: int, purpose: str) -> int:
    """A seed derived from the run's seed and from its purpose."""
    return _draw(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()),)))


def _draw(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint32)[0] >> 1)

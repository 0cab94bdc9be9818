"""Random numbers of JAX's own generator (Threefry), and the cipher of the portable ones as one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlweave.backends.portable_random import threefry_2x32

Array = Any


class FastRandom:
    """`ops.random` on JAX.

    Args:
        cell: Holds the state, a raw key (uint32, (2,)), in its attribute `value`. Each draw splits the key and binds
            the cell to the new one.
    """

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def _key(self) -> Array:
        # The implementation is named, so that jax's global default does not change what a saved key means.
        keys = jax.random.split(jax.random.wrap_key_data(self.cell.value, impl="threefry2x32"))
        self.cell.value = jax.random.key_data(keys[0])
        return keys[1]

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        return low + jax.random.uniform(self._key(), tuple(shape), jnp.float32) * (high - low)

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        return mean + jax.random.normal(self._key(), tuple(shape), jnp.float32) * std

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`."""
        return jax.random.randint(self._key(), tuple(shape), low, high, jnp.int32)

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        return jax.random.uniform(self._key(), jnp.shape(p), jnp.float32) < p

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`."""
        return jax.random.categorical(self._key(), logits).astype(jnp.int32)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`."""
        return jax.random.permutation(self._key(), n).astype(jnp.int32)

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        return jax.random.gumbel(self._key(), tuple(shape), jnp.float32)


def initial_state(seed: int) -> Array:
    """A raw key made from a seed."""
    return jax.device_put(np.random.SeedSequence(seed).generate_state(2, np.uint32))  # `jnp.asarray` compiles


def state_to_numpy(state: Array) -> np.ndarray:
    """The key as uint32 (2,)."""
    return np.array(state)


def state_from_numpy(array: np.ndarray) -> Array:
    """The key that `state_to_numpy` wrote."""
    return jnp.array(np.asarray(array, np.uint32))


def encrypted(_ops: Any, key_0: Array, key_1: Array, counter_0: Array, counter_1: Array) -> tuple[Array, Array]:
    """See `threefry_2x32`. Written out, its hundred operations are most of what a program that draws is traced from."""
    return _threefry(key_0, key_1, counter_0, counter_1)


@jax.jit
def _threefry(*words: Array) -> tuple[Array, Array]:
    return threefry_2x32(jnp, *words)

"""Random numbers of TensorFlow's stateless generator: the state is an array, so it works in compiled runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.extensions.tensorflow_.array import TensorFlowArray, operands, real, shape_tensor, tensor_of
from rlweave.extensions.tensorflow_.framework import tf

Array = Any

_TINY = 1e-30


class FastRandom:
    """`ops.random` on TensorFlow.

    Args:
        cell: Holds the state, a seed (int32, (2,)), in its attribute `value`. Each draw splits the seed and binds the
            cell to the new one.
    """

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def _seed(self) -> Any:
        # the generator is named: "auto_select" would draw other numbers on another device
        seeds = tf.random.split(tensor_of(self.cell.value), 2, "philox")
        self.cell.value = TensorFlowArray(seeds[0])
        return seeds[1]

    def _uniform(self, shape: Any) -> Any:
        return tf.random.stateless_uniform(shape, self._seed(), alg="philox")

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`."""
        draw = TensorFlowArray(self._uniform(shape_tensor(shape)))
        if type(low) is float and type(high) is float and (low, high) == (0.0, 1.0):
            return draw
        span: Any = TensorFlowArray(tf.subtract(*operands(TensorFlowArray(real(high)), TensorFlowArray(real(low)))))
        scaled: Any = draw
        return scaled * span + TensorFlowArray(real(low))

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`."""
        draw = tf.random.stateless_normal(shape_tensor(shape), self._seed(), alg="philox")
        return TensorFlowArray(real(mean) + draw * real(std))

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`. A remainder of 31 bits, so uneven by at most (high - low) / 2^31."""
        bits = tf.random.stateless_uniform(shape_tensor(shape), self._seed(), None, None, dtype=tf.int32, alg="philox")
        bits = tf.bitwise.bitwise_and(bits, 0x7FFFFFFF)
        low, high = tensor_of(low, tf.int32), tensor_of(high, tf.int32)
        return TensorFlowArray(low + tf.math.floormod(bits, high - low))

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        p = real(p)
        return TensorFlowArray(self._uniform(tf.shape(p)) < p)

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. The largest of logits plus Gumbel noise wins."""
        logits = real(logits)
        return TensorFlowArray(tf.argmax(logits + self._gumbel(tf.shape(logits)), -1, tf.int32))

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`. The order of n random numbers."""
        bits = tf.random.stateless_uniform(shape_tensor(n), self._seed(), None, None, dtype=tf.int32, alg="philox")
        return TensorFlowArray(tf.argsort(bits, stable=True))

    def _gumbel(self, shape: Any) -> Any:
        return -tf.math.log(-tf.math.log(tf.maximum(self._uniform(shape), _TINY)))

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        return TensorFlowArray(self._gumbel(shape_tensor(shape)))


def initial_state(seed: int) -> Array:
    """A seed of two words."""
    return state_from_numpy(np.random.SeedSequence(seed).generate_state(2, np.uint32))


def state_to_numpy(state: Array) -> np.ndarray:
    """The seed as uint32 (2,)."""
    return np.array(state).view(np.uint32)


def state_from_numpy(array: np.ndarray) -> Array:
    """The seed that `state_to_numpy` wrote."""
    return TensorFlowArray(tf.constant(np.asarray(array, np.uint32).view(np.int32)))

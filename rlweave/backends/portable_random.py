"""One counter-based random generator for every backend, written in ops.

It is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
in wrap-around int32 arithmetic. The n-th draw since the start encrypts the counters (0, n), (1, n), (2, n), ... with
the key, so numbers depend on (key, n, position) alone: not on the backend, the device, compilation or order.

Bits, `uniform` with its default bounds, `randint`, `bernoulli` and `permutation` are equal bit by bit everywhere.
`normal`, `gumbel` and other bounds go through rounding functions and agree to float32 precision; `categorical` agrees
but for near-ties of that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20
_MASK_24 = 0x00FFFFFF
_MASK_23 = 0x007FFFFF
_MASK_31 = 0x7FFFFFFF


def threefry_2x32(ops: Any, key_0: Array, key_1: Array, counter_0: Array, counter_1: Array) -> tuple[Array, Array]:
    """Encrypts a pair of counters with a pair of keys.

    Args:
        ops: A backend's operators.
        key_0: int32 with at least one axis (NumPy warns about wrap-around of single numbers, not of arrays).
        key_1: The same.
        counter_0: int32 that broadcasts against the keys.
        counter_1: The same.

    Returns:
        Two int32 arrays of random bits.
    """
    keys = (key_0, key_1, ops.bitwise_xor(ops.bitwise_xor(key_0, key_1), _PARITY))
    x0, x1 = ops.add(counter_0, key_0), ops.add(counter_1, key_1)
    for step in range(_ROUNDS):
        x0 = ops.add(x0, x1)
        x1 = ops.bitwise_xor(_rotate_left(ops, x1, _ROTATIONS[step % 8]), x0)
        if step % 4 == 3:
            group = step // 4 + 1
            x0 = ops.add(x0, keys[group % 3])
            x1 = ops.add(ops.add(x1, keys[(group + 1) % 3]), group)
    return x0, x1


def _rotate_left(ops: Any, x: Array, count: int) -> Array:
    return ops.bitwise_or(ops.bitwise_left_shift(x, count), _shift_right(ops, x, 32 - count, (1 << count) - 1))


def _shift_right(ops: Any, x: Array, count: int, mask: int) -> Array:
    # The shift of a signed integer repeats its sign; the mask removes that.
    return ops.bitwise_and(ops.bitwise_right_shift(x, count), mask)


class PortableRandom:
    """`ops.random` with the same numbers on every backend.

    Args:
        ops_module: A backend's operators.
        cell: Holds the state in its attribute `value`: int32 (3,), two key words and the number of draws so far. Each
            draw binds the cell to an advanced copy.
        encrypt: `threefry_2x32`, or what a backend has in its place.
    """

    def __init__(self, ops_module: Any, cell: Any, encrypt: Callable[..., tuple[Array, Array]] = threefry_2x32) -> None:
        self.ops = ops_module
        self.cell = cell
        self.encrypt = encrypt

    def _words(self, count: int) -> tuple[Array, Array]:
        """Two arrays (count,) of random bits; advances the state by one draw."""
        ops, state = self.ops, self.cell.value
        key_0, key_1, draw = state[0:1], state[1:2], state[2:3]
        self.cell.value = ops.concat([state[0:2], ops.add(draw, 1)])
        return self.encrypt(ops, key_0, key_1, ops.arange(count), draw)

    def bits(self, shape: Sequence[int]) -> Array:
        """Random int32 bits of a shape."""
        size = math.prod(shape)
        words = self.ops.concat(self._words((size + 1) // 2))
        return self.ops.reshape(words[:size], tuple(shape))

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
        """See `ops.random.uniform`. The upper 24 bits, so every multiple of 2^-24 in [0, 1) is equally likely."""
        ops = self.ops
        draw = ops.multiply(ops.astype(_shift_right(ops, self.bits(shape), 8, _MASK_24), "float32"), 2.0**-24)
        if isinstance(low, int | float) and isinstance(high, int | float) and low == 0.0 and high == 1.0:
            return draw
        return ops.add(low, ops.multiply(draw, high - low))

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Array:
        """See `ops.random.normal`. Box and Muller's method: two numbers out of each pair of words."""
        ops, size = self.ops, math.prod(shape)
        word_0, word_1 = self._words((size + 1) // 2)
        # (0, 1], so that the logarithm is finite.
        u = ops.multiply(ops.add(ops.astype(_shift_right(ops, word_0, 8, _MASK_24), "float32"), 1.0), 2.0**-24)
        angle = ops.multiply(ops.astype(_shift_right(ops, word_1, 8, _MASK_24), "float32"), math.pi * 2.0**-23)
        radius = ops.sqrt(ops.multiply(ops.log(u), -2.0))
        pairs = ops.concat([ops.multiply(radius, ops.cos(angle)), ops.multiply(radius, ops.sin(angle))])
        return ops.add(mean, ops.multiply(ops.reshape(pairs[:size], tuple(shape)), std))

    def randint(self, shape: Sequence[int], low: Array, high: Array) -> Array:
        """See `ops.random.randint`. A remainder of 31 bits, so uneven by at most (high - low) / 2^31."""
        ops = self.ops
        return ops.add(low, ops.remainder(ops.bitwise_and(self.bits(shape), _MASK_31), ops.subtract(high, low)))

    def bernoulli(self, p: Array) -> Array:
        """See `ops.random.bernoulli`."""
        p = self.ops.asarray(p)
        return self.ops.less(self.uniform(p.shape), p)

    def categorical(self, logits: Array) -> Array:
        """See `ops.random.categorical`. The largest of logits plus Gumbel noise wins."""
        return self.ops.argmax(self.ops.add(logits, self.gumbel(logits.shape)), axis=-1)

    def permutation(self, n: int) -> Array:
        """See `ops.random.permutation`. The order of n random words; of equal words the first stays first."""
        return self.ops.argsort(self.bits((n,)))

    def gumbel(self, shape: Sequence[int]) -> Array:
        """See `ops.random.gumbel`."""
        ops = self.ops
        # Odd multiples of 2^-24: strictly between 0 and 1, and exact in float32.
        whole = ops.astype(_shift_right(ops, self.bits(shape), 9, _MASK_23), "float32")
        u = ops.multiply(ops.add(whole, 0.5), 2.0**-23)
        return ops.negative(ops.log(ops.negative(ops.log(u))))


def initial_state(seed: int) -> np.ndarray:
    """int32 (3,): two key words made from the seed, and no draws so far."""
    words = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return np.concatenate([words, np.zeros(1, np.uint32)]).view(np.int32)

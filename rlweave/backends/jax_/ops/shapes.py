"""Shape operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

Array = Any


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return jnp.reshape(x, shape)


def expand_dims(x: Array, axis: int) -> Array:
    return jnp.expand_dims(x, axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    return jnp.squeeze(x, axis)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return jnp.transpose(x, tuple(axes))


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    return jnp.concatenate(arrays, axis)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    return jnp.stack(arrays, axis)


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    return tuple(jnp.unstack(x, axis=axis))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return jnp.broadcast_to(x, tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    return jnp.flip(x, axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return jnp.roll(x, shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return jnp.repeat(x, repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return jnp.tile(x, tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return jnp.sort(x, axis, descending=descending)


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return jnp.argsort(x, axis, stable=True, descending=descending)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    return jnp.searchsorted(x1, x2, side)


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))

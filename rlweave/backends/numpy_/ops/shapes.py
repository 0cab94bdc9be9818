"""Shape operators on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.creation import asarray
from rlweave.backends.numpy_.ops.elementwise import _narrowed

Array = Any


def _array(x: Array) -> Array:
    return x if isinstance(x, np.ndarray) else asarray(x)


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return _array(x).reshape(shape)


def expand_dims(x: Array, axis: int) -> Array:
    x = _array(x)
    if axis == 0:
        return x[None]
    return x[..., None] if axis == -1 else np.expand_dims(x, axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    return _array(x).squeeze(axis)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return _array(x).transpose(axes)


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    result = np.concatenate(arrays, axis)
    return result if result.dtype.char == "f" else _narrowed_join(result, arrays)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    result = np.stack(arrays, axis)
    return result if result.dtype.char == "f" else _narrowed_join(result, arrays)


def _narrowed_join(result: Array, arrays: Sequence[Array]) -> Array:
    return _narrowed(result, *arrays) if result.dtype.char in "dlq" else result


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    x = _array(x)
    return tuple(x if axis == 0 else np.moveaxis(x, axis, 0))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return np.broadcast_to(_array(x), tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    return np.flip(_array(x), axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return np.roll(_array(x), shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return _array(x).repeat(repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return np.tile(_array(x), tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    result = np.sort(_array(x), axis=axis, stable=True)
    return np.flip(result, axis) if descending else result


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    x = _array(x)
    if not descending:
        return x.argsort(axis=axis, stable=True).astype(np.int32)
    # Sorting the reversed array and reversing the result keeps equal elements in their order.
    order = np.flip(np.flip(x, axis).argsort(axis=axis, stable=True), axis)
    return (x.shape[axis] - 1 - order).astype(np.int32)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    return np.asarray(np.searchsorted(x1, x2, side)).astype(np.int32)  # type: ignore[call-overload]


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))

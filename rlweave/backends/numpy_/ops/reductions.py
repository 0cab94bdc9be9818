"""Reductions on NumPy, through `ufunc.reduce`: `np.sum` and `np.mean` spend several times as long in Python."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.creation import asarray

Array = Any
Axis = int | tuple[int, ...] | None

# Typed loosely: the stubs of `reduce` want a literal `keepdims`.
_add: Any = np.add
_multiply: Any = np.multiply
_maximum: Any = np.maximum
_minimum: Any = np.minimum
_or: Any = np.logical_or
_and: Any = np.logical_and
_INTEGERS = frozenset("biu")


_INT32 = np.dtype(np.int32)


def _array(x: Array) -> Array:
    return x if isinstance(x, np.ndarray) else asarray(x)


def _count(shape: tuple[int, ...], axis: Axis) -> int:
    if axis is None:
        return math.prod(shape)
    if isinstance(axis, tuple):
        return math.prod([shape[a] for a in axis])
    return shape[axis]


def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _array(x)
    dtype = np.int32 if x.dtype.kind in _INTEGERS else None
    return _add.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _array(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    return _add.reduce(x, axis=axis, keepdims=keepdims) / _count(x.shape, axis)


def prod(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _array(x)
    dtype = np.int32 if x.dtype.kind in _INTEGERS else None
    return _multiply.reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)


def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return _maximum.reduce(_array(x), axis=axis, keepdims=keepdims)


def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return _minimum.reduce(_array(x), axis=axis, keepdims=keepdims)


def any(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return _or.reduce(_array(x), axis=axis, keepdims=keepdims)


def all(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return _and.reduce(_array(x), axis=axis, keepdims=keepdims)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return np.sqrt(var(x, axis, keepdims))


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _array(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    return mean(np.square(x - mean(x, axis, True)), axis, keepdims)


def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _array(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    largest = _maximum.reduce(x, axis=axis, keepdims=True)
    # An infinite maximum must not be subtracted from itself.
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    total = _add.reduce(np.exp(x - largest), axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):
        result = np.log(total) + largest
    if keepdims:
        return result
    return result.reshape(()) if axis is None else np.squeeze(result, axis)


def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    if type(x) is not np.ndarray:
        x = asarray(x)
    return (x.argmax(axis, keepdims=True) if keepdims else x.argmax(axis)).astype(_INT32)


def argmin(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    return _array(x).argmin(axis, keepdims=keepdims).astype(np.int32)


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    x = _array(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {x.ndim} axes.")
        axis = 0
    return np.add.accumulate(x, axis=axis, dtype=np.int32 if x.dtype.kind in _INTEGERS else None)

"""Reductions on NumPy, through `ufunc.reduce`: `np.sum` and `np.mean` spend several times as long in Python."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.doubling import doubling
from rlweave.backends.numpy_.ops.arrays import array_of, asarray, concat, zeros_like

Array = Any
Axis = int | tuple[int, ...] | None

# Typed loosely: the stubs of `reduce` want a literal `keepdims`.
_add: Any = np.add
_INTEGERS = frozenset("biu")


_INT32 = np.dtype(np.int32)


def _count(shape: tuple[int, ...], axis: Axis) -> int:
    if axis is None:
        return math.prod(shape)
    if isinstance(axis, tuple):
        return math.prod([shape[a] for a in axis])
    return shape[axis]


def _total(function: Any) -> Callable[..., Array]:
    """A reduction whose integers are int32."""
    reduce = function.reduce

    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        x = array_of(x)
        dtype = np.int32 if x.dtype.kind in _INTEGERS else None
        return reduce(x, axis=axis, dtype=dtype, keepdims=keepdims)

    return call


def _reduction(function: Any) -> Callable[..., Array]:
    reduce = function.reduce

    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        return reduce(array_of(x), axis=axis, keepdims=keepdims)

    return call


sum = _total(np.add)
prod = _total(np.multiply)
max = _reduction(np.maximum)
min = _reduction(np.minimum)
any = _reduction(np.logical_or)
all = _reduction(np.logical_and)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = array_of(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    return _add.reduce(x, axis=axis, keepdims=keepdims) / _count(x.shape, axis)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return np.sqrt(var(x, axis, keepdims))


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = array_of(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    return mean(np.square(x - mean(x, axis, True)), axis, keepdims)


def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = array_of(x)
    if x.dtype.kind in _INTEGERS:
        x = x.astype(np.float32)
    largest = np.maximum.reduce(x, axis=axis, keepdims=True)
    # An infinite maximum must not be subtracted from itself.
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    total = np.add.reduce(np.exp(x - largest), axis=axis, keepdims=True)
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
    return array_of(x).argmin(axis, keepdims=keepdims).astype(np.int32)


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    x = array_of(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {x.ndim} axes.")
        axis = 0
    return np.add.accumulate(x, axis=axis, dtype=np.int32 if x.dtype.kind in _INTEGERS else None)


discounted_sums = doubling(array_of, concat, zeros_like)

"""Reductions on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.backends.doubling import doubling
from rlweave.extensions.tensorflow_.array import TensorFlowArray, real, tensor_of
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.extensions.tensorflow_.ops.arrays import concat, zeros_like
from rlweave.extensions.tensorflow_.ops.control import scan

Array = Any
Axis = int | tuple[int, ...] | None


def _summable(x: Array) -> Any:
    x = tensor_of(x)
    return x if x.dtype.is_floating else tf.cast(x, tf.int32)


def _truth(x: Array) -> Any:
    return tensor_of(x, tf.bool)


def _axes(axis: Axis) -> Any:
    return list(axis) if isinstance(axis, tuple) else axis


def _reduction(reduce: Callable[..., Any], prepared: Callable[[Array], Any]) -> Callable[..., Array]:
    """A reduction of what `prepared` makes of an array."""

    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        return TensorFlowArray(reduce(prepared(x), _axes(axis), keepdims))

    return call


def _extreme(reduce: Callable[..., Any]) -> Callable[..., Array]:
    def call(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
        x = tensor_of(x)
        if x.dtype == tf.bool:
            return TensorFlowArray(tf.cast(reduce(tf.cast(x, tf.uint8), _axes(axis), keepdims), tf.bool))
        return TensorFlowArray(reduce(x, _axes(axis), keepdims))

    return call


def _position(search: Callable[..., Any]) -> Callable[..., Array]:
    def call(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        x = tensor_of(x)
        if x.dtype == tf.bool:
            x = tf.cast(x, tf.uint8)
        if axis is None:
            found = search(tf.reshape(x, (-1,)), 0, tf.int32)
            return TensorFlowArray(tf.reshape(found, (1,) * x.shape.rank) if keepdims else found)
        found = search(x, axis, tf.int32)
        return TensorFlowArray(tf.expand_dims(found, axis) if keepdims else found)

    return call


sum = _reduction(tf.reduce_sum, _summable)
prod = _reduction(tf.reduce_prod, _summable)
mean = _reduction(tf.reduce_mean, real)
logsumexp = _reduction(tf.reduce_logsumexp, real)
any = _reduction(tf.reduce_any, _truth)
all = _reduction(tf.reduce_all, _truth)
max = _extreme(tf.reduce_max)
min = _extreme(tf.reduce_min)
argmax = _position(tf.argmax)
argmin = _position(tf.argmin)


def _variance(x: Array, axis: Axis, keepdims: bool) -> Any:
    x = real(x)
    return tf.reduce_mean(tf.square(x - tf.reduce_mean(x, _axes(axis), True)), _axes(axis), keepdims)


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    variance = _variance(x, axis, keepdims)
    # The root of 0 has an infinite gradient, which times the variance's own 0 is NaN: keep 0 away from the root.
    constant, one = tf.equal(variance, 0.0), tf.ones_like(variance)
    return TensorFlowArray(tf.where(constant, tf.zeros_like(variance), tf.sqrt(tf.where(constant, one, variance))))


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return TensorFlowArray(_variance(x, axis, keepdims))


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    x = _summable(x)
    if axis is None:
        if x.shape.rank != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {x.shape.rank} axes.")
        axis = 0
    return TensorFlowArray(tf.cumsum(x, axis))


_doubled = doubling(lambda x: TensorFlowArray(tensor_of(x)), concat, zeros_like)


def discounted_sums(x: Array, decays: Array) -> Array:
    if tensor_of(x).shape[0] is not None:
        return _doubled(x, decays)

    def step(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        total = row[0] + row[1] * following
        return total, total

    return scan(step, zeros_like(sum(x, 0)), (x, decays), reverse=True)[1]

"""Creation and conversion on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.tensorflow_.array import TensorFlowArray, cast, dtype_of, shape_tensor, tensor_of
from rlweave.backends.tensorflow_.framework import tf

Array = Any
Shape = int | Sequence[int]


def asarray(x: Array, dtype: str | None = None) -> Array:
    return TensorFlowArray(tensor_of(x, None if dtype is None else dtype_of(dtype)))


def _filled(shape: Shape, value: Array, dtype: Any) -> Array:
    sizes = shape_tensor(shape)
    if isinstance(sizes, tuple) and isinstance(value, bool | int | float):
        return TensorFlowArray(tf.constant(dtype.as_numpy_dtype(value), dtype, sizes))
    return TensorFlowArray(tf.broadcast_to(tensor_of(value, dtype), sizes))


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return _filled(shape, 0, dtype_of(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return _filled(shape, 1, dtype_of(dtype))


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return _filled(shape, tensor_of(fill_value, dtype_of(dtype)), dtype_of(dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    wanted = dtype_of(dtype)
    if not any(isinstance(bound, TensorFlowArray) for bound in (start, stop, step)):
        numbers: Any = np.arange(start, stop, step, np.dtype(wanted.as_numpy_dtype))  # type: ignore[call-overload]
        return TensorFlowArray(tf.constant(numbers))
    inner = wanted if wanted in (tf.int32, tf.float32) else tf.int32
    bounds = [tensor_of(bound, inner) for bound in (start, stop, step)]
    return TensorFlowArray(tf.cast(tf.range(*bounds), wanted))


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    wanted = dtype_of(dtype)
    if not any(isinstance(bound, TensorFlowArray) for bound in (start, stop, num)):
        return TensorFlowArray(tf.constant(np.linspace(start, stop, num, dtype=wanted.as_numpy_dtype)))
    between = tf.linspace(tensor_of(start, tf.float32), tensor_of(stop, tf.float32), tensor_of(num, tf.int32))
    return TensorFlowArray(tf.cast(between, wanted))


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    rows, columns = (None if n is None else tensor_of(n, tf.int32) for n in (n_rows, n_cols))
    if isinstance(n_rows, int) and not isinstance(n_cols, TensorFlowArray):
        rows, columns = n_rows, n_cols
    return TensorFlowArray(cast(tf.eye(rows, columns), dtype_of(dtype)))


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.zeros_like(x, x.dtype if dtype is None else dtype_of(dtype)))


def ones_like(x: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.ones_like(x, x.dtype if dtype is None else dtype_of(dtype)))


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    value = tensor_of(fill_value, x.dtype if dtype is None else dtype_of(dtype))
    return TensorFlowArray(tf.broadcast_to(value, tf.shape(x)))


def astype(x: Array, dtype: str) -> Array:
    return TensorFlowArray(tensor_of(x, dtype_of(dtype)))

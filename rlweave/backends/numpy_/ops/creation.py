"""Creation and conversion on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
Shape = int | Sequence[int]

_NARROW = {"d": np.dtype("float32"), "l": np.dtype("int32"), "q": np.dtype("int32")}


def asarray(x: Array, dtype: str | None = None) -> Array:
    if dtype is not None:
        return np.asarray(x, dtype)
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    result = np.asarray(x)
    narrow = _NARROW.get(result.dtype.char)
    return result if narrow is None else result.astype(narrow)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return np.ones(shape, dtype)


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return np.full(shape, fill_value, dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    return np.arange(start, stop, step, np.dtype(dtype))  # type: ignore[call-overload]


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    return np.linspace(start, stop, num, dtype=dtype)


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    return np.eye(n_rows, n_cols, dtype=dtype)


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.zeros(x.shape, dtype or x.dtype)


def ones_like(x: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.ones(x.shape, dtype or x.dtype)


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    return np.full(x.shape, fill_value, dtype or x.dtype)


def astype(x: Array, dtype: str) -> Array:
    return np.asarray(x).astype(dtype, copy=False)

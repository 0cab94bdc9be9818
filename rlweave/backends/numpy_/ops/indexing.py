"""Indexing on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    return np.asarray(x).take(indices, axis)


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    return np.take_along_axis(x, indices, axis)


def take_last(x: Array, indices: Array) -> Array:
    # take_along_axis builds an index array per axis (15 us); one flat index takes 3.
    indices = np.asarray(indices)
    size = x.shape[-1]
    rows = np.arange(0, indices.size * size, size)
    return x.reshape(-1).take(rows + indices.reshape(-1)).reshape(indices.shape)


def set_at(x: Array, indices: Array, values: Array) -> Array:
    # NumPy assigns in order, so the last of equal indices wins.
    result = np.array(x)
    result[np.asarray(indices)] = values
    return result


def add_at(x: Array, indices: Array, values: Array) -> Array:
    result = np.array(x)
    np.add.at(result, np.asarray(indices), np.asarray(values, result.dtype))
    return result

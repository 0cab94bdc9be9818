"""Creation and conversion on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any
Shape = int | Sequence[int]

# Without 64-bit types JAX would warn on each request for one.
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


def jax_dtype(dtype: Any) -> str:
    """The dtype that JAX has in place of the named one."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    return _NARROW.get(name, name)


def asarray(x: Array, dtype: str | None = None) -> Array:
    if dtype is not None:
        return jnp.asarray(x, jax_dtype(dtype))
    result = jnp.asarray(x)
    # A number becomes an array of its own dtype, no longer one that adapts to the other operand.
    return result if hasattr(x, "dtype") else jnp.asarray(result, result.dtype)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return jnp.zeros(shape, jax_dtype(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return jnp.ones(shape, jax_dtype(dtype))


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return jnp.full(shape, fill_value, jax_dtype(dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    return jnp.arange(start, stop, step, jax_dtype(dtype))


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    return jnp.linspace(start, stop, num, dtype=jax_dtype(dtype))


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    return jnp.eye(n_rows, n_cols, dtype=jax_dtype(dtype))


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    return jnp.zeros_like(x, dtype=None if dtype is None else jax_dtype(dtype))


def ones_like(x: Array, dtype: str | None = None) -> Array:
    return jnp.ones_like(x, dtype=None if dtype is None else jax_dtype(dtype))


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    return jnp.full_like(x, fill_value, dtype=None if dtype is None else jax_dtype(dtype))


def astype(x: Array, dtype: str) -> Array:
    return jnp.asarray(x).astype(jax_dtype(dtype))

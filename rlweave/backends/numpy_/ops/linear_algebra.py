"""Products on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.elementwise import _narrowed

Array = Any

# Below this size an operand's contraction is cheaper in einsum's own loop than the search for a BLAS path.
_SMALL = 512


def matmul(x1: Array, x2: Array) -> Array:
    result = np.matmul(x1, x2)
    return result if result.dtype.char == "f" or result.dtype.char not in "dlq" else _narrowed(result, x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    large = max(np.size(operand) for operand in operands) > _SMALL
    result = np.asarray(np.einsum(equation, *operands, optimize=large))
    return result if result.dtype.char not in "dlq" else _narrowed(result, *operands)


_ZERO = np.float32(0)
_maximum = np.maximum


def activated(x: Array, activation: str | None) -> Array:
    """An array, overwritten by its activation."""
    if activation is None:
        return x
    if activation == "relu":
        return _maximum(x, _ZERO, out=x)
    if activation == "tanh":
        return np.tanh(x, out=x)
    raise KeyError(activation)


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    # The method `dot` reaches BLAS a microsecond sooner than `matmul`, and only for two axes.
    if rows or x.ndim == 2:
        result = x.dot(kernel)
    else:
        result = x.reshape((-1, x.shape[-1])).dot(kernel).reshape((*x.shape[:-1], kernel.shape[-1]))
    if bias is not None:
        result += bias
    if activation == "relu":  # what acting in single microseconds asks for
        return _maximum(result, _ZERO, out=result)
    return activated(result, activation)

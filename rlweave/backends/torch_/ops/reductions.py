"""Reductions on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlweave.backends.doubling import doubling
from rlweave.backends.torch_.ops.arrays import concat, tensor_of, zeros_like

Array = Any
Axis = int | tuple[int, ...] | None


def _float(x: Array) -> Tensor:
    x = tensor_of(x)
    return x if x.dtype.is_floating_point else x.to(torch.float32)


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x)
    return torch.sum(x, axis, keepdims, dtype=None if x.dtype.is_floating_point else torch.int32)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return torch.mean(_float(x), axis, keepdims)


def prod(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x)
    if not x.dtype.is_floating_point:
        x = x.to(torch.int32)
    # torch.prod takes one axis at a time.
    for one in sorted((a % x.ndim for a in _axes(x, axis)), reverse=True):
        x = torch.prod(x, one, keepdims, dtype=x.dtype)
    return x


def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x)
    return torch.amax(x, _axes(x, axis), keepdims)


def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x)
    return torch.amin(x, _axes(x, axis), keepdims)


def any(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x).to(torch.bool)
    return torch.any(x, _axes(x, axis), keepdims) if x.ndim else x


def all(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = tensor_of(x).to(torch.bool)
    return torch.all(x, _axes(x, axis), keepdims) if x.ndim else x


def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _float(x)
    return torch.std(x, _axes(x, axis), correction=0, keepdim=keepdims)


def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _float(x)
    return torch.var(x, _axes(x, axis), correction=0, keepdim=keepdims)


def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    x = _float(x)
    return torch.logsumexp(x, _axes(x, axis), keepdims) if x.ndim else x


_argmax, _bool = torch.argmax, torch.bool


def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    try:
        return _argmax(x if x.dtype is not _bool else _countable(x), axis, keepdims).int()
    except (AttributeError, TypeError):  # no tensor
        return _argmax(_countable(x), axis, keepdims).int()


def argmin(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    return torch.argmin(_countable(x), axis, keepdims).int()


def _countable(x: Array) -> Tensor:
    x = tensor_of(x)
    return x.to(torch.uint8) if x.dtype == torch.bool else x


def cumulative_sum(x: Array, axis: int | None = None) -> Array:
    x = tensor_of(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_sum needs `axis` for an array with {x.ndim} axes.")
        axis = 0
    return torch.cumsum(x, axis, dtype=None if x.dtype.is_floating_point else torch.int32)


discounted_sums = doubling(tensor_of, concat, zeros_like)

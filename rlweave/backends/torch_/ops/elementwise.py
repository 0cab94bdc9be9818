"""Elementwise operators on torch.

Most are Python's operators, which accept a number on either side; the functions that insist on tensors get one from
`_tensors`.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlweave.backends.torch_.ops.creation import asarray

Array = Any

_NUMBERS = (bool, int, float)


def _operands(x1: Array, x2: Array) -> tuple[Array, Array]:
    """At least one tensor and no NumPy arrays, for Python's operators."""
    is_tensor_1, is_tensor_2 = isinstance(x1, Tensor), isinstance(x2, Tensor)
    if is_tensor_1 and is_tensor_2:
        return x1, x2
    if is_tensor_1 and type(x2) in _NUMBERS:
        # bool + int is int64 in torch.
        return (x1.to(torch.int32), x2) if x1.dtype == torch.bool and type(x2) is int else (x1, x2)
    if is_tensor_2 and type(x1) in _NUMBERS:
        return (x1, x2.to(torch.int32)) if x2.dtype == torch.bool and type(x1) is int else (x1, x2)
    return _as_tensor(x1, x2), _as_tensor(x2, x1)


def _tensors(x1: Array, x2: Array) -> tuple[Tensor, Tensor]:
    """Two tensors; a number takes the dtype of the other operand unless that would lose it."""
    return _as_tensor(x1, x2), _as_tensor(x2, x1)


def _as_tensor(x: Array, other: Array) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if not isinstance(other, Tensor):
        return asarray(x)
    if type(x) not in _NUMBERS:
        return asarray(x).to(other.device)
    dtype = other.dtype
    if type(x) is float and not dtype.is_floating_point:
        dtype = torch.float32
    elif type(x) is int and dtype == torch.bool:
        dtype = torch.int32
    elif type(x) is bool and dtype != torch.bool:
        dtype = torch.bool
    return torch.tensor(x, dtype=dtype, device=other.device)


def abs(x: Array) -> Array:
    return torch.abs(x if isinstance(x, Tensor) else asarray(x))


def negative(x: Array) -> Array:
    return torch.neg(x if isinstance(x, Tensor) else asarray(x))


def exp(x: Array) -> Array:
    return torch.exp(x if isinstance(x, Tensor) else asarray(x))


def expm1(x: Array) -> Array:
    return torch.expm1(x if isinstance(x, Tensor) else asarray(x))


def log(x: Array) -> Array:
    return torch.log(x if isinstance(x, Tensor) else asarray(x))


def log1p(x: Array) -> Array:
    return torch.log1p(x if isinstance(x, Tensor) else asarray(x))


def sqrt(x: Array) -> Array:
    return torch.sqrt(x if isinstance(x, Tensor) else asarray(x))


def square(x: Array) -> Array:
    return torch.square(x if isinstance(x, Tensor) else asarray(x))


def sign(x: Array) -> Array:
    return torch.sign(x if isinstance(x, Tensor) else asarray(x))


def sin(x: Array) -> Array:
    return torch.sin(x if isinstance(x, Tensor) else asarray(x))


def cos(x: Array) -> Array:
    return torch.cos(x if isinstance(x, Tensor) else asarray(x))


def tanh(x: Array) -> Array:
    return torch.tanh(x if isinstance(x, Tensor) else asarray(x))


def floor(x: Array) -> Array:
    return torch.floor(x if isinstance(x, Tensor) else asarray(x))


def ceil(x: Array) -> Array:
    return torch.ceil(x if isinstance(x, Tensor) else asarray(x))


def round(x: Array) -> Array:
    return torch.round(x if isinstance(x, Tensor) else asarray(x))


def isfinite(x: Array) -> Array:
    return torch.isfinite(x if isinstance(x, Tensor) else asarray(x))


def isnan(x: Array) -> Array:
    return torch.isnan(x if isinstance(x, Tensor) else asarray(x))


def logical_not(x: Array) -> Array:
    return torch.logical_not(x if isinstance(x, Tensor) else asarray(x))


def lgamma(x: Array) -> Array:
    return torch.lgamma(x if isinstance(x, Tensor) else asarray(x))


def erf(x: Array) -> Array:
    return torch.erf(x if isinstance(x, Tensor) else asarray(x))


def add(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 + x2


def subtract(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 - x2


def multiply(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 * x2


def divide(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 / x2


def remainder(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 % x2


def pow(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1**x2


def equal(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 == x2


def not_equal(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 != x2


def less(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 < x2


def less_equal(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 <= x2


def greater(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 > x2


def greater_equal(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 >= x2


def bitwise_and(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 & x2


def bitwise_or(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 | x2


def bitwise_xor(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 ^ x2


def bitwise_left_shift(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 << x2


def bitwise_right_shift(x1: Array, x2: Array) -> Array:
    x1, x2 = _operands(x1, x2)
    return x1 >> x2


def floor_divide(x1: Array, x2: Array) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.div(x1, x2, rounding_mode="floor")


def minimum(x1: Array, x2: Array) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.minimum(x1, x2)


def maximum(x1: Array, x2: Array) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.maximum(x1, x2)


def logical_and(x1: Array, x2: Array) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.logical_and(x1, x2)


def logical_or(x1: Array, x2: Array) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.logical_or(x1, x2)


def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    x = x if isinstance(x, Tensor) else asarray(x)
    if min is None and max is None:
        return x
    if not (min is None or type(min) in _NUMBERS) or not (max is None or type(max) in _NUMBERS):
        # torch.clamp takes two numbers or two tensors.
        min = None if min is None else _as_tensor(min, x)
        max = None if max is None else _as_tensor(max, x)
    return torch.clamp(x, min, max)


def where(condition: Array, x1: Array, x2: Array) -> Array:
    if not isinstance(condition, Tensor):
        condition = asarray(condition)
    if condition.dtype != torch.bool:
        condition = condition != 0
    if isinstance(x1, Tensor):
        if not isinstance(x2, Tensor) and not (type(x2) is float and x1.dtype.is_floating_point):
            x2 = _as_tensor(x2, x1)
    elif isinstance(x2, Tensor):
        if not (type(x1) is float and x2.dtype.is_floating_point):
            x1 = _as_tensor(x1, x2)
    else:
        x1, x2 = asarray(x1), asarray(x2)
    return torch.where(condition, x1, x2)

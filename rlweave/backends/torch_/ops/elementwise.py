"""Elementwise operators on torch.

Most are Python's operators, which accept a number on either side; the functions that insist on tensors get one from
`_tensors`.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlweave.backends.torch_.ops.arrays import asarray

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


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[Array], Array]:
    def call(x: Array, /) -> Array:
        return function(x if isinstance(x, Tensor) else asarray(x))

    return call


def _python(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """One of Python's operators, which take a number on either side."""

    def call(x1: Array, x2: Array, /) -> Array:
        x1, x2 = _operands(x1, x2)
        return function(x1, x2)

    return call


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Array, Array], Array]:
    """A function of two tensors."""

    def call(x1: Array, x2: Array, /) -> Array:
        x1, x2 = _tensors(x1, x2)
        return function(x1, x2)

    return call


abs = _unary(torch.abs)
negative = _unary(torch.neg)
exp = _unary(torch.exp)
expm1 = _unary(torch.expm1)
log = _unary(torch.log)
log1p = _unary(torch.log1p)
sqrt = _unary(torch.sqrt)
square = _unary(torch.square)
sign = _unary(torch.sign)
sin = _unary(torch.sin)
cos = _unary(torch.cos)
tanh = _unary(torch.tanh)
floor = _unary(torch.floor)
ceil = _unary(torch.ceil)
round = _unary(torch.round)
isfinite = _unary(torch.isfinite)
isnan = _unary(torch.isnan)
logical_not = _unary(torch.logical_not)
lgamma = _unary(torch.lgamma)
erf = _unary(torch.erf)

add = _python(operator.add)
subtract = _python(operator.sub)
multiply = _python(operator.mul)
divide = _python(operator.truediv)
remainder = _python(operator.mod)
pow = _python(operator.pow)
equal = _python(operator.eq)
not_equal = _python(operator.ne)
less = _python(operator.lt)
less_equal = _python(operator.le)
greater = _python(operator.gt)
greater_equal = _python(operator.ge)
bitwise_and = _python(operator.and_)
bitwise_or = _python(operator.or_)
bitwise_xor = _python(operator.xor)
bitwise_left_shift = _python(operator.lshift)
bitwise_right_shift = _python(operator.rshift)

minimum = _binary(torch.minimum)
maximum = _binary(torch.maximum)
logical_and = _binary(torch.logical_and)
logical_or = _binary(torch.logical_or)


def floor_divide(x1: Array, x2: Array, /) -> Array:
    x1, x2 = _tensors(x1, x2)
    return torch.div(x1, x2, rounding_mode="floor")


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

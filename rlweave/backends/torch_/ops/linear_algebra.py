"""Products on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlweave.backends.torch_.ops.creation import asarray

Array = Any


def _tensor(x: Array) -> Tensor:
    return x if isinstance(x, Tensor) else asarray(x)


def _promoted(x1: Array, x2: Array) -> tuple[Tensor, Tensor]:
    """Torch's products want equal dtypes."""
    x1, x2 = _tensor(x1), _tensor(x2)
    if x1.dtype != x2.dtype:
        dtype = torch.promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(dtype), x2.to(dtype)
    return x1, x2


def matmul(x1: Array, x2: Array) -> Array:
    x1, x2 = _promoted(x1, x2)
    return torch.matmul(x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    return torch.einsum(equation, *[_tensor(operand) for operand in operands])


_addmm: Any = torch.addmm
_relu_ = torch.relu_
#: The result of a product belongs to nobody else yet, and their derivatives need only what they return.
IN_PLACE = {None: lambda x: x, "relu": torch.relu_, "tanh": torch.tanh_}


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    if rows or (bias is not None and x.ndim == 2):
        try:
            product = _addmm(bias, x, kernel)
        except TypeError:  # not all of them are tensors, or there is no bias
            pass
        else:  # the commonest first: acting is a matter of single microseconds
            return _relu_(product) if activation == "relu" else IN_PLACE[activation](product)
    x, kernel, bias = _tensor(x), _tensor(kernel), None if bias is None else _tensor(bias)
    return IN_PLACE[activation](functional.linear(x, kernel.t(), bias))

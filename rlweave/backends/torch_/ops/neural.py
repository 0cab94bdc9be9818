"""Products and neural operators on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlweave.backends.torch_.ops.arrays import asarray, tensor_of, torch_dtype

Array = Any


def _promoted(x1: Array, x2: Array) -> tuple[Tensor, Tensor]:
    """Torch's products want equal dtypes."""
    x1, x2 = tensor_of(x1), tensor_of(x2)
    if x1.dtype != x2.dtype:
        dtype = torch.promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(dtype), x2.to(dtype)
    return x1, x2


def matmul(x1: Array, x2: Array) -> Array:
    x1, x2 = _promoted(x1, x2)
    return torch.matmul(x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    return torch.einsum(equation, *[tensor_of(operand) for operand in operands])


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
    x, kernel, bias = tensor_of(x), tensor_of(kernel), None if bias is None else tensor_of(bias)
    return IN_PLACE[activation](functional.linear(x, kernel.t(), bias))


relu = torch.relu
sigmoid = torch.sigmoid


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    return functional.leaky_relu(x, negative_slope)


def elu(x: Array, alpha: float = 1.0) -> Array:
    return functional.elu(x, alpha)


def gelu(x: Array, approximate: bool = False) -> Array:
    return functional.gelu(x, approximate="tanh" if approximate else "none")


def silu(x: Array, /) -> Array:
    return functional.silu(x)


def softplus(x: Array, /) -> Array:
    return functional.softplus(x)


def softmax(x: Array, axis: int = -1) -> Array:
    return torch.softmax(x, axis)


def log_softmax(x: Array, axis: int = -1) -> Array:
    return torch.log_softmax(x, axis)


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    # functional.one_hot reads the largest index back to the host.
    indices = indices if isinstance(indices, Tensor) else asarray(indices)
    classes = torch.arange(num_classes, dtype=indices.dtype, device=indices.device)
    return (indices.unsqueeze(-1) == classes).to(torch_dtype(dtype))


_conv2d = functional.conv2d


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    if padding == "same":
        x = _padded(x, kernel, stride)
    elif padding != "valid":
        raise ValueError(f"conv2d: padding must be 'valid' or 'same'. Received: {padding!r}.")
    # These are views: a contiguous NHWC array is a "channels last" NCHW tensor, and so is the result. What is no
    # contiguous array (frames whose channels were brought to the end) becomes one: kernels of NCHW, and for the
    # gradients of what follows, take half as long again.
    try:
        images = x.contiguous().permute(0, 3, 1, 2)
        result = _conv2d(images, kernel.permute(3, 2, 0, 1), bias, stride)
    except (AttributeError, TypeError):  # not all of them are tensors
        images, filters = asarray(x).permute(0, 3, 1, 2), asarray(kernel).permute(3, 2, 0, 1)
        result = _conv2d(images, filters, None if bias is None else asarray(bias), stride)
    return (result if activation is None else IN_PLACE[activation](result)).permute(0, 2, 3, 1)


def _padded(x: Array, kernel: Array, stride: int | tuple[int, int]) -> Array:
    step_h, step_w = (stride, stride) if isinstance(stride, int) else stride
    top, bottom = _same_padding(x.shape[1], kernel.shape[0], step_h)
    left, right = _same_padding(x.shape[2], kernel.shape[1], step_w)
    return functional.pad(asarray(x), (0, 0, left, right, top, bottom))


def _same_padding(size: int, kernel: int, step: int) -> tuple[int, int]:
    total = max((-(-size // step) - 1) * step + kernel - size, 0)
    return total // 2, total - total // 2


_REDUCTIONS = {"none": 0, "mean": 1}


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"huber_loss: reduction must be 'none' or 'mean'. Received: {reduction!r}.")
    # what functional.huber_loss calls, after broadcasts and checks that take longer than the loss
    kernel: Any = torch._C._nn.huber_loss
    return kernel(asarray(predictions), asarray(targets), _REDUCTIONS[reduction], delta)

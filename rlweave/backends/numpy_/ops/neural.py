"""Products and neural operators on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.elementwise import _narrowed, erf

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
        # the number of rows is written out, as of arrays of size 0 there is no telling what -1 is
        leading = x.shape[:-1]
        result = x.reshape((math.prod(leading), x.shape[-1])).dot(kernel).reshape((*leading, kernel.shape[-1]))
    if bias is not None:
        result += bias
    if activation == "relu":  # what acting in single microseconds asks for
        return _maximum(result, _ZERO, out=result)
    return activated(result, activation)


# An array operand saves the conversion of a Python number at every call; without axes it never widens... float32
# against float64 inputs promotes to float64, as it should.
_ZERO_ARRAY = np.zeros((), np.float32)


def relu(x: Array, /) -> Array:
    return np.maximum(x, _ZERO_ARRAY)


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    return np.where(x > 0, x, x * negative_slope)


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def gelu(x: Array, approximate: bool = False) -> Array:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def silu(x: Array, /) -> Array:
    return x * sigmoid(x)


def sigmoid(x: Array, /) -> Array:
    decay = np.exp(-np.absolute(x))  # never above 1, so nothing overflows
    return np.where(x >= 0, 1, decay) / (1 + decay)


def softplus(x: Array, /) -> Array:
    return np.logaddexp(x, 0)


def softmax(x: Array, axis: int = -1) -> Array:
    result = np.exp(x - np.maximum.reduce(x, axis=axis, keepdims=True))
    result /= np.add.reduce(result, axis=axis, keepdims=True)
    return result


def log_softmax(x: Array, axis: int = -1) -> Array:
    shifted = x - np.maximum.reduce(x, axis=axis, keepdims=True)
    return shifted - np.log(np.add.reduce(np.exp(shifted), axis=axis, keepdims=True))


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    return (np.asarray(indices)[..., None] == np.arange(num_classes)).astype(dtype)


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    step_h, step_w = (stride, stride) if isinstance(stride, int) else stride
    kernel_h, kernel_w, in_channels, out_channels = kernel.shape
    if padding == "same":
        pad_h = _same_padding(x.shape[1], kernel_h, step_h)
        pad_w = _same_padding(x.shape[2], kernel_w, step_w)
        x = np.pad(x, ((0, 0), pad_h, pad_w, (0, 0)))
    elif padding != "valid":
        raise ValueError(f"conv2d: padding must be 'valid' or 'same'. Received: {padding!r}.")
    n, height, width, _ = x.shape
    out_h, out_w = (height - kernel_h) // step_h + 1, (width - kernel_w) // step_w + 1
    if out_h <= 0 or out_w <= 0:
        raise ValueError(f"conv2d: the kernel {kernel.shape[:2]} does not fit into the image {(height, width)}.")
    s_n, s_h, s_w, s_c = x.strides
    windows = np.lib.stride_tricks.as_strided(
        x,
        (n, out_h, out_w, kernel_h, kernel_w, in_channels),
        (s_n, s_h * step_h, s_w * step_w, s_h, s_w, s_c),
        writeable=False,
    )
    columns = windows.reshape((n * out_h * out_w, kernel_h * kernel_w * in_channels))
    result = columns.dot(kernel.reshape((-1, out_channels)))
    if bias is not None:
        result += bias
    return activated(result, activation).reshape((n, out_h, out_w, out_channels))


def _same_padding(size: int, kernel: int, step: int) -> tuple[int, int]:
    total = max((-(-size // step) - 1) * step + kernel - size, 0)
    return total // 2, total - total // 2


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    if reduction not in ("none", "mean"):
        raise ValueError(f"huber_loss: reduction must be 'none' or 'mean'. Received: {reduction!r}.")
    error = predictions - targets
    clipped = np.clip(error, -delta, delta)
    loss = clipped * (error - 0.5 * clipped)
    return loss if reduction == "none" else loss.mean()

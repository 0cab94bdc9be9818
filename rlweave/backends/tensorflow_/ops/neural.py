"""Neural operators on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

from rlweave.backends.tensorflow_.array import TensorFlowArray, dtype_of, operands, real, tensor_of
from rlweave.backends.tensorflow_.framework import tf
from rlweave.backends.tensorflow_.ops.elementwise import of_tensor
from rlweave.backends.tensorflow_.ops.linear_algebra import FUSED_ACTIVATIONS

Array = Any

relu = of_tensor(tf.nn.relu)
sigmoid = of_tensor(tf.sigmoid)
softplus = of_tensor(tf.nn.softplus)


def softmax(x: Array, axis: int = -1) -> Array:
    return TensorFlowArray(tf.nn.softmax(tensor_of(x), axis))


def log_softmax(x: Array, axis: int = -1) -> Array:
    return TensorFlowArray(tf.nn.log_softmax(tensor_of(x), axis))


def gelu(x: Array, approximate: bool = False) -> Array:
    return TensorFlowArray(tf.nn.gelu(tensor_of(x), approximate))


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    x = tensor_of(x)
    # Strictly above 0, so that the gradient at 0 is the slope, as it is in torch.
    return TensorFlowArray(tf.where(tf.greater(x, 0), x, negative_slope * x))


def elu(x: Array, alpha: float = 1.0) -> Array:
    x = tensor_of(x)
    # the exponential of what lies above 0 may overflow, and then its gradient, though not selected, is NaN
    below = alpha * tf.math.expm1(tf.where(tf.greater(x, 0), tf.zeros_like(x), x))
    return TensorFlowArray(tf.where(tf.greater(x, 0), x, below))


def silu(x: Array, /) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(x * tf.sigmoid(x))


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    return TensorFlowArray(tf.one_hot(tensor_of(indices, tf.int32), num_classes, on_value=None, dtype=dtype_of(dtype)))


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    steps = [stride, stride] if isinstance(stride, int) else list(stride)
    if padding not in ("valid", "same"):
        raise ValueError(f"conv2d: padding must be 'valid' or 'same'. Received: {padding!r}.")
    result = tf.nn.conv2d(real(x), real(kernel), steps, padding.upper())
    if bias is not None:
        result = tf.add(*operands(TensorFlowArray(result), bias))
    return TensorFlowArray(FUSED_ACTIVATIONS[activation](result))


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    if reduction not in ("none", "mean"):
        raise ValueError(f"huber_loss: reduction must be 'none' or 'mean'. Received: {reduction!r}.")
    error = tf.subtract(*operands(predictions, targets))
    clipped = tf.clip_by_value(error, -delta, delta)
    loss = clipped * (error - 0.5 * clipped)
    return TensorFlowArray(loss if reduction == "none" else tf.reduce_mean(loss))

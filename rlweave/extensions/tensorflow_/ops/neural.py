"""Products and neural operators on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

from rlweave.extensions.tensorflow_.array import TensorFlowArray, common, dtype_of, operands, real, tensor_of
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.extensions.tensorflow_.ops.elementwise import of_tensor

Array = Any


FUSED_ACTIVATIONS = {None: lambda x: x, "relu": tf.nn.relu, "tanh": tf.tanh}


def matmul(x1: Array, x2: Array) -> Array:
    first, second = operands(x1, x2)
    if first.shape.rank == 1 and second.shape.rank == 1:
        return TensorFlowArray(tf.reduce_sum(first * second))
    if second.shape.rank == 1:
        return TensorFlowArray(tf.linalg.matvec(first, second))
    if first.shape.rank == 1:
        return TensorFlowArray(tf.squeeze(tf.matmul(tf.expand_dims(first, 0), second), -2))
    if second.shape.rank == 2 and first.shape.rank > 2:
        return TensorFlowArray(_rows_times(first, second))
    return TensorFlowArray(tf.matmul(first, second))


def _rows_times(x: Any, matrix: Any) -> Any:
    """A product with one matrix, as one product of two axes; a broadcast one takes several times as long."""
    rows = tf.matmul(tf.reshape(x, (-1, x.shape[-1] if x.shape[-1] is not None else tf.shape(x)[-1])), matrix)
    leading = x.shape.as_list()[:-1]
    if None in leading:
        sizes = tf.shape(x)
        leading = [sizes[i] if n is None else n for i, n in enumerate(leading)]
    last = matrix.shape[-1] if matrix.shape[-1] is not None else tf.shape(matrix)[-1]
    return tf.reshape(rows, [*leading, last])


def einsum(equation: str, *operands: Array) -> Array:
    return TensorFlowArray(tf.einsum(equation, *common([tensor_of(operand) for operand in operands])))


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    result = matmul(x, kernel).tensor
    if bias is not None:
        result = tf.add(*operands(TensorFlowArray(result), bias))
    return TensorFlowArray(FUSED_ACTIVATIONS[activation](result))


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

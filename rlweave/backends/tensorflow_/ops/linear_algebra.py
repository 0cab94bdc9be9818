"""Products on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

from rlweave.backends.tensorflow_.array import TensorFlowArray, common, operands, tensor_of
from rlweave.backends.tensorflow_.framework import tf

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

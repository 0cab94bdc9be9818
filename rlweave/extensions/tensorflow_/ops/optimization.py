"""Steps of optimizers, as plain operators: TensorFlow's own optimizers are objects with variables (and Keras')."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.backends import optimizer_steps
from rlweave.extensions.tensorflow_.array import TensorFlowArray, tensor_of
from rlweave.extensions.tensorflow_.framework import tf

Array = Any


class _Namespace:
    """What the formulas of `optimizer_steps` call, on tensors."""

    square, sqrt, maximum, expm1 = tf.square, tf.sqrt, tf.maximum, tf.math.expm1

    @staticmethod
    def astype(x: Any, dtype: str) -> Any:
        return tf.cast(x, dtype)


def _tensors(arrays: Sequence[Array]) -> list[Any]:
    return [tensor_of(array) for array in arrays]


def _arrays(tensors: Sequence[Any]) -> list[Array]:
    return [TensorFlowArray(tensor) for tensor in tensors]


def _rate(learning_rate: float | Array) -> Any:
    return learning_rate if isinstance(learning_rate, int | float) else tensor_of(learning_rate)


def _correction(beta: float, step: Array) -> Any:
    return optimizer_steps.bias_correction(_Namespace, beta, tensor_of(step))


sgd_update, adam_update, rmsprop_update = optimizer_steps.operators(_Namespace, _correction, _tensors, _arrays, _rate)


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    tensors = _tensors(gradients)
    squares = [tf.reduce_sum(tf.square(g)) for g in tensors]
    norm = tf.sqrt(tf.add_n(squares) if squares else tf.zeros(()))
    # infinite where the norm is 0, and so 1
    scale = tf.minimum(tf.math.divide(_rate(max_norm), norm), 1.0)
    return _arrays([g * scale for g in tensors]), TensorFlowArray(norm)

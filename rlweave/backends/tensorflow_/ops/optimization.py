"""Steps of optimizers, as plain operators: TensorFlow's own optimizers are objects with variables (and Keras')."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.backends import optimizer_steps
from rlweave.backends.tensorflow_.array import TensorFlowArray, tensor_of
from rlweave.backends.tensorflow_.framework import tf

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


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    tensors = _tensors(gradients)
    squares = [tf.reduce_sum(tf.square(g)) for g in tensors]
    norm = tf.sqrt(tf.add_n(squares) if squares else tf.zeros(()))
    # infinite where the norm is 0, and so 1
    scale = tf.minimum(tf.math.divide(_rate(max_norm), norm), 1.0)
    return _arrays([g * scale for g in tensors]), TensorFlowArray(norm)


def sgd_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float = 0.0,
    nesterov: bool = False,
    donate: bool = False,
) -> tuple[list[Array], list[Array]]:
    moved, velocities = optimizer_steps.sgd(
        _tensors(parameters), _tensors(gradients), _tensors(velocities), _rate(learning_rate), momentum, nesterov
    )
    return _arrays(moved), _arrays(velocities)


def adam_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    means: Sequence[Array],
    variances: Sequence[Array],
    step: Array,
    learning_rate: float | Array,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array]]:
    corrections = (
        optimizer_steps.bias_correction(_Namespace, beta1, tensor_of(step)),
        optimizer_steps.bias_correction(_Namespace, beta2, tensor_of(step)),
    )
    results = optimizer_steps.adam(
        _Namespace,
        _tensors(parameters),
        _tensors(gradients),
        _tensors(means),
        _tensors(variances),
        corrections,
        _rate(learning_rate),
        beta1,
        beta2,
        epsilon,
        weight_decay,
    )
    moved, means, variances = (_arrays(result) for result in results)
    return moved, means, variances


def rmsprop_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    squares: Sequence[Array],
    velocities: Sequence[Array],
    means: Sequence[Array],
    learning_rate: float | Array,
    decay: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    results = optimizer_steps.rmsprop(
        _Namespace,
        _tensors(parameters),
        _tensors(gradients),
        _tensors(squares),
        _tensors(velocities),
        _tensors(means),
        _rate(learning_rate),
        decay,
        epsilon,
        momentum,
    )
    moved, squares, velocities, means = (_arrays(result) for result in results)
    return moved, squares, velocities, means

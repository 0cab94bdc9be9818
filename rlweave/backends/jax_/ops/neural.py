"""Neural operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rlweave.backends.jax_.ops.creation import jax_dtype
from rlweave.backends.jax_.ops.linear_algebra import FUSED_ACTIVATIONS

Array = Any


def relu(x: Array) -> Array:
    return jax.nn.relu(x)


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    # Strictly above 0, so that the gradient at 0 is the slope, as it is in torch.
    return jnp.where(x > 0, x, negative_slope * x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    return jax.nn.elu(x, alpha)


def gelu(x: Array, approximate: bool = False) -> Array:
    return jax.nn.gelu(x, approximate)


def silu(x: Array) -> Array:
    return jax.nn.silu(x)


def sigmoid(x: Array) -> Array:
    return jax.nn.sigmoid(x)


def softplus(x: Array) -> Array:
    return jax.nn.softplus(x)


def softmax(x: Array, axis: int = -1) -> Array:
    return jax.nn.softmax(x, axis)


def log_softmax(x: Array, axis: int = -1) -> Array:
    return jax.nn.log_softmax(x, axis)


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    return jax.nn.one_hot(indices, num_classes, dtype=jax_dtype(dtype))


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    steps = (stride, stride) if isinstance(stride, int) else stride
    if padding not in ("valid", "same"):
        raise ValueError(f"conv2d: padding must be 'valid' or 'same'. Received: {padding!r}.")
    dimensions = ("NHWC", "HWIO", "NHWC")
    result = jax.lax.conv_general_dilated(x, kernel, steps, padding.upper(), dimension_numbers=dimensions)
    if bias is not None:
        result = result + bias
    return result if activation is None else FUSED_ACTIVATIONS[activation](result)


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    if reduction not in ("none", "mean"):
        raise ValueError(f"huber_loss: reduction must be 'none' or 'mean'. Received: {reduction!r}.")
    error = predictions - targets
    clipped = jnp.clip(error, -delta, delta)
    loss = clipped * (error - 0.5 * clipped)
    return loss if reduction == "none" else loss.mean()

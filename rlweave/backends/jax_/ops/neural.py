"""Products and neural operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rlweave.backends.jax_.ops.arrays import jax_dtype
from rlweave.backends.jax_.ops.convolution import FUSED_ACTIVATIONS

Array = Any


def matmul(x1: Array, x2: Array) -> Array:
    return jnp.matmul(x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    return jnp.einsum(equation, *operands)


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    result = jnp.matmul(x, kernel)
    if bias is not None:
        result = result + bias
    return result if activation is None else FUSED_ACTIVATIONS[activation](result)


relu = jax.nn.relu
silu = jax.nn.silu
sigmoid = jax.nn.sigmoid
softplus = jax.nn.softplus
elu = jax.nn.elu


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    # Strictly above 0, so that the gradient at 0 is the slope, as it is in torch.
    return jnp.where(x > 0, x, negative_slope * x)


def gelu(x: Array, approximate: bool = False) -> Array:
    return jax.nn.gelu(x, approximate)


def softmax(x: Array, axis: int = -1) -> Array:
    return jax.nn.softmax(x, axis)


def log_softmax(x: Array, axis: int = -1) -> Array:
    return jax.nn.log_softmax(x, axis)


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    return jax.nn.one_hot(indices, num_classes, dtype=jax_dtype(dtype))


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    if reduction not in ("none", "mean"):
        raise ValueError(f"huber_loss: reduction must be 'none' or 'mean'. Received: {reduction!r}.")
    error = predictions - targets
    clipped = jnp.clip(error, -delta, delta)
    loss = clipped * (error - 0.5 * clipped)
    return loss if reduction == "none" else loss.mean()

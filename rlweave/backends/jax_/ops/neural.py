"""Neural operators on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rlweave.backends.jax_.ops.creation import jax_dtype

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


def conv2d(x: Array, kernel: Array, stride: int | tuple[int, int] = 1, padding: str = "valid") -> Array:
    steps = (stride, stride) if isinstance(stride, int) else stride
    if padding not in ("valid", "same"):
        raise ValueError(f"conv2d: padding must be 'valid' or 'same'. Received: {padding!r}.")
    return jax.lax.conv_general_dilated(x, kernel, steps, padding.upper(), dimension_numbers=("NHWC", "HWIO", "NHWC"))

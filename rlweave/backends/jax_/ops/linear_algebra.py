"""Products on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def matmul(x1: Array, x2: Array) -> Array:
    return jnp.matmul(x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    return jnp.einsum(equation, *operands)


FUSED_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    result = jnp.matmul(x, kernel)
    if bias is not None:
        result = result + bias
    return result if activation is None else FUSED_ACTIVATIONS[activation](result)

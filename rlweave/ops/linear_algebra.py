"""Products of matrices and tensors."""

from __future__ import annotations

from rlweave.ops.dispatch import Array, implementation


def matmul(x1: Array, x2: Array) -> Array:
    """Matrix product of the last two axes, broadcasting the others; one-dimensional arguments are vectors."""
    return implementation(x1, x2).matmul(x1, x2)


def einsum(equation: str, *operands: Array) -> Array:
    """Sum of products in Einstein notation, such as `"tbi,ij->tbj"`."""
    return implementation(operands).einsum(equation, *operands)


def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    """A dense layer, activation(x @ kernel + bias), in one fused step where the backend has one.

    Args:
        x: Floats, (..., N).
        kernel: (N, M).
        bias: (M,), or None.
        activation: "relu", "tanh", or None.
        rows: True promises that x is (K, N), and saves the look at it; False: it may have any axes.

    Returns:
        (..., M).

    Raises:
        KeyError: Another activation.
    """
    return implementation(x, kernel).linear(x, kernel, bias, activation, rows)

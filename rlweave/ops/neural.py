"""Products, layers, activations and encodings of neural networks. Inputs are floats unless said otherwise."""

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


def relu(x: Array, /) -> Array:
    """max(x, 0). The gradient at 0 is 0."""
    return implementation(x).relu(x)


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """Gives x where positive, else negative_slope * x."""
    return implementation(x).leaky_relu(x, negative_slope)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """Gives x where positive, else alpha * (exp(x) - 1)."""
    return implementation(x).elu(x, alpha)


def gelu(x: Array, approximate: bool = False) -> Array:
    """Gives x * Phi(x), Phi being the normal distribution function; by its tanh approximation if `approximate`."""
    return implementation(x).gelu(x, approximate)


def silu(x: Array, /) -> Array:
    """Gives x * sigmoid(x), also called swish."""
    return implementation(x).silu(x)


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return implementation(x).sigmoid(x)


def softplus(x: Array, /) -> Array:
    """log(1 + exp(x)) without overflow."""
    return implementation(x).softplus(x)


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x) divided by its sum along an axis, without overflow."""
    return implementation(x).softmax(x, axis)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """log(softmax(x)), exact for small probabilities."""
    return implementation(x).log_softmax(x, axis)


def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    """1 at the index along a new last axis of size `num_classes`, 0 elsewhere; all 0 for an index out of range."""
    return implementation(indices).one_hot(indices, num_classes, dtype)


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    """Two-dimensional convolution (cross-correlation, as usual in the field), channels last.

    Args:
        x: Floats, (N, H, W, C_in).
        kernel: (k_h, k_w, C_in, C_out).
        stride: One step for both axes or (s_h, s_w).
        padding: `"valid"`: no padding, H_out = (H - k_h) // s_h + 1. `"same"`: zeros such that
            H_out = ceil(H / s_h), the odd one below and to the right.
        bias: (C_out,), added to every pixel; None: nothing.
        activation: "relu", "tanh", or None: applied to the result.

    Returns:
        (N, H_out, W_out, C_out).

    Raises:
        ValueError: Another padding.
        KeyError: Another activation.
    """
    return implementation(x, kernel).conv2d(x, kernel, stride, padding, bias, activation)


def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    """0.5 * e^2 of the error e = predictions - targets, from |e| = delta on linear (Huber 1964).

    Beyond delta it is delta * (|e| - 0.5 * delta), which joins smoothly.

    Args:
        predictions: Floats.
        targets: Floats of the same shape.
        delta: A number above 0.
        reduction: `"none"`: elementwise. `"mean"`: the mean over all elements, without axes.

    Raises:
        ValueError: Another reduction.
    """
    return implementation(predictions, targets).huber_loss(predictions, targets, delta, reduction)

"""Operators of ONNX in plain NumPy that take more than an expression: their sources go into exported policies."""

import math

import numpy as np


def reshape(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """A length of 0 keeps that of x, and -1 is what is left."""
    return np.reshape(x, [x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Broadcasts x to a shape, or to what both broadcast to."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in shape)))


def divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A quotient; of integers, cut towards zero."""
    if np.issubdtype(x.dtype, np.integer):
        return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)
    return x / y


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + power), power / (1 + power)).astype(x.dtype)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Logarithms of shares that sum to 1."""
    x = x - np.max(x, axis=axis, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def gelu(x: np.ndarray, approximate: bool) -> np.ndarray:
    """Product of x and the probability that a standard normal number is below it."""
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def top(x: np.ndarray, count: np.ndarray, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The largest (or smallest) entries along an axis, and their indices; of equals the first comes first."""
    order = np.argsort(-x if largest else x, axis=axis, kind="stable")
    order = np.take(order, np.arange(int(count[0])), axis=axis)
    return np.take_along_axis(x, order, axis), order


def convolution(
    x: np.ndarray, kernel: np.ndarray, bias: np.ndarray | None, strides: tuple[int, int], same: bool
) -> np.ndarray:
    """Images (B, channels, height, width) and a kernel (filters, channels, height, width)."""
    (rows, columns), sizes = strides, kernel.shape[2:]
    if same:
        padding: list[tuple[int, int]] = []
        for size, width, stride in zip(x.shape[2:], sizes, strides, strict=True):
            missing = max((-(-size // stride) - 1) * stride + width - size, 0)
            padding.append((missing // 2, missing - missing // 2))
        x = np.pad(x, [(0, 0), (0, 0), *padding])
    windows = np.lib.stride_tricks.sliding_window_view(x, sizes, axis=(2, 3))[:, :, ::rows, ::columns]
    batch, _, height, width = windows.shape[:4]
    patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, -1)
    result = patches @ kernel.reshape(len(kernel), -1).T
    if bias is not None:
        result = result + bias
    return result.reshape(batch, height, width, len(kernel)).transpose(0, 3, 1, 2)

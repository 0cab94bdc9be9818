"""Convolutions on JAX: XLA's own, or slices and matrix products where these are faster on a CPU."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

Array = Any

FUSED_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


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
    if _MATRIX_PRODUCTS.get():
        convolve = _convolved_by_products
    elif isinstance(x.shape[0], int) and x.shape[0] > _SLICE and _faster_by_products(kernel, steps):
        starts = _starts_of_slices(x.shape[0])[1:]
        parts = [_convolved_by_products(part, kernel, steps, padding) for part in jnp.split(x, list(starts))]
        return jnp.concatenate([_finished(part, bias, activation) for part in parts])
    else:
        convolve = _convolved
    return _finished(convolve(x, kernel, steps, padding), bias, activation)


def _finished(result: Array, bias: Array | None, activation: str | None) -> Array:
    if bias is not None:
        result = result + bias
    return result if activation is None else FUSED_ACTIVATIONS[activation](result)


def _convolved(x: Array, kernel: Array, strides: tuple[int, int], padding: str) -> Array:
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, strides, padding.upper(), dimension_numbers=dimensions)


_MATRIX_PRODUCTS = ContextVar("convolutions as matrix products", default=False)


@contextmanager
def as_matrix_products() -> Iterator[None]:
    """Has convolutions that are traced within made of slices and matrix products."""
    token = _MATRIX_PRODUCTS.set(True)
    try:
        yield
    finally:
        _MATRIX_PRODUCTS.reset(token)


def _faster_by_products(kernel: Array, strides: tuple[int, int]) -> bool:
    """Whether XLA's own convolution of a large batch, above all its gradient, takes longer here than matrix products.

    On CPUs that is so where the kernel sees at most 2 x 2 blocks of stride x stride pixels. Small batches fit the
    caches, and are XLA's.
    """
    sides = zip(kernel.shape[:2], strides, strict=True)
    return min(strides) > 1 and all(size <= 2 * step for size, step in sides) and jax.default_backend() == "cpu"


def _starts_of_slices(batch: int) -> range:
    """Where the slices of a batch begin that are multiplied one after the other.

    What lies between a slice and its result then stays in the cache, and XLA joins layers slice by slice: an update of
    PPO on Pong takes a quarter less. More slices than `_MOST_SLICES` would take long to compile.
    """
    return range(0, batch, max(_SLICE, -(-batch // _MOST_SLICES)))


#: Frames of a slice at least, and slices of a batch at most.
_SLICE, _MOST_SLICES = 64, 16


def _convolved_by_products(x: Array, kernel: Array, strides: tuple[int, int], padding: str) -> Array:
    """A convolution (B, H, W, C) by (KH, KW, C, F) as one matrix product.

    Blocks of stride x stride pixels become channels. Each block is multiplied by all parts of the kernel that meet it
    somewhere; then each place adds up what is its own, so that no pixel is copied for every place that sees it.
    """
    batch, height, width, channels = x.shape
    (kernel_h, kernel_w), (step_h, step_w), filters = kernel.shape[:2], strides, kernel.shape[-1]
    around = jax.lax.padtype_to_pads((height, width), (kernel_h, kernel_w), strides, padding.upper())
    rows = (height + sum(around[0]) - kernel_h) // step_h + 1
    columns = (width + sum(around[1]) - kernel_w) // step_w + 1
    blocks_h, blocks_w = -(-kernel_h // step_h), -(-kernel_w // step_w)
    high, wide = rows + blocks_h - 1, columns + blocks_w - 1
    # a kernel that is no multiple of the stride is filled up with zeros
    edges = [(before, blocks * step - size - before) for (before, _), blocks, step, size in
             ((around[0], high, step_h, height), (around[1], wide, step_w, width))]  # fmt: skip
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*edge, 0) for edge in edges), (0, 0, 0)])
    x = x.reshape(batch, high, step_h, wide, step_w, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(batch * high * wide, step_h * step_w * channels)
    filled = ((0, blocks_h * step_h - kernel_h), (0, blocks_w * step_w - kernel_w), (0, 0), (0, 0))
    kernel = jnp.pad(kernel, filled).reshape(blocks_h, step_h, blocks_w, step_w, channels, filters)
    kernel = kernel.transpose(1, 3, 4, 0, 2, 5).reshape(step_h * step_w * channels, blocks_h * blocks_w * filters)
    parts = jnp.split((x @ kernel).reshape(batch, high, wide, -1), blocks_h * blocks_w, axis=-1)
    places = itertools.product(range(blocks_h), range(blocks_w))
    return sum(part[:, i : i + rows, j : j + columns] for part, (i, j) in zip(parts, places, strict=True))

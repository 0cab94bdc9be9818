"""Products as ONNX nodes."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.backends.onnx_.ops.shapes import reshape
from rlweave.backends.onnx_.symbol import Symbol
from rlweave.backends.onnx_.symbolic import Target, composed, symbolic

Array = Any

#: From so many numbers on a kernel is multiplied from the left. ONNX Runtime brings the right factor of a product into
#: an order of its own in each call (unless it is a constant, which weights are not here): for 3136 x 512 and 8 rows
#: that takes 8 ms, and this way 1.8 ms.
LARGE_KERNEL = 1 << 15


@symbolic(reference.matmul)
def matmul(target: Target, x1: Array, x2: Array) -> str:
    return str(target.node("MatMul", [target.name(x1, target.dtype), target.name(x2, target.dtype)]))


@symbolic(reference.einsum)
def einsum(target: Target, equation: str, *operands: Array) -> str:
    return str(target.node("Einsum", [target.name(x, target.dtype) for x in operands], equation=equation))


ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}


@composed(reference.linear)
def linear(
    x: Array, kernel: Array, bias: Array | None = None, activation: str | None = None, rows: bool = False
) -> Array:
    if x.ndim == 2:
        return _rows(x, kernel, bias, activation)
    leading = x.shape[:-1]
    flat = _rows(reshape(x, (math.prod(leading), x.shape[-1])), kernel, bias, activation)
    return reshape(flat, (*leading, kernel.shape[-1]))


def _plain(x: Array, kernel: Array, bias: Array | None, activation: str | None) -> Array:
    return reference.linear(x, kernel, bias, activation)


@symbolic(_plain)
def _rows(target: Target, x: Array, kernel: Array, bias: Array | None, activation: str | None) -> str:
    """A dense layer of rows (K, N)."""
    model, dtype = target.model, target.dtype
    name = target.name(x, dtype)
    biases = [] if bias is None else [target.name(bias, dtype)]
    large = isinstance(kernel, Symbol) and kernel.weight is not None and math.prod(kernel.shape) >= LARGE_KERNEL
    if large and (bias is None or isinstance(bias, Symbol)):
        found = _from_the_left(target, name, kernel, biases)
    else:
        found = model.node("Gemm", [name, target.name(kernel, dtype), *biases])
    if activation is not None:
        found = model.node(ACTIVATIONS[activation], [found])
    return str(found)


def _from_the_left(target: Target, x: str, kernel: Symbol, biases: list[str]) -> str:
    """(kernel^T x^T)^T, with a transposed kernel; one row is a product with a vector, which needs no such order."""
    model, dtype = target.model, target.dtype
    turned = model.derived_weight(kernel, "transposed", _transposed)
    rows = model.node("Shape", [x], start=0, end=1)
    one = model.node("Squeeze", [model.node("Equal", [rows, model.constant([1], np.int64)])])
    with model.subgraph() as single:
        vector = model.node("Gemm", [x, turned, *biases], transB=1)
    with model.subgraph() as several:
        columns = [model.node("Unsqueeze", [biases[0], model.constant([1], np.int64)])] if biases else []
        product = model.node("Gemm", [turned, x, *columns], transB=1)
        result = model.node("Transpose", [product], perm=[1, 0])
    branches = {
        "then_branch": model.graph_of(single, [], [(vector, dtype)]),
        "else_branch": model.graph_of(several, [], [(result, dtype)]),
    }
    return str(model.node("If", [one], **branches))


def _transposed(kernel: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(kernel.T)

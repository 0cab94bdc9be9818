"""Products and neural operators as ONNX nodes."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.blocked_convolution import blocked_conv2d
from rlweave.extensions.onnx_.ops.arrays import astype, expand_dims, reshape
from rlweave.extensions.onnx_.ops.elementwise import abs, equal, less_equal, multiply, square, subtract, where
from rlweave.extensions.onnx_.ops.reductions import mean
from rlweave.extensions.onnx_.symbol import Symbol
from rlweave.extensions.onnx_.symbolic import Operator, Target, composed, model_of, symbolic

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


def _activation(op_type: str, function: Operator, names: tuple[str, ...] = ()) -> Operator:
    """A function of floats; further arguments are attributes."""

    @symbolic(function)
    def write(target: Target, x: Array, *values: Any, **attributes: Any) -> str:
        return str(
            target.node(op_type, [target.name(x, target.dtype)], **dict(zip(names, values, strict=False)), **attributes)
        )

    return write


relu = _activation("Relu", reference.relu)
sigmoid = _activation("Sigmoid", reference.sigmoid)
softplus = _activation("Softplus", reference.softplus)
softmax = _activation("Softmax", reference.softmax, ("axis",))
log_softmax = _activation("LogSoftmax", reference.log_softmax, ("axis",))
elu = _activation("Elu", reference.elu, ("alpha",))


@symbolic(reference.leaky_relu)
def leaky_relu(target: Target, x: Array, negative_slope: float = 0.01) -> str:
    return str(target.node("LeakyRelu", [target.name(x, target.dtype)], alpha=float(negative_slope)))


@symbolic(reference.gelu)
def gelu(target: Target, x: Array, approximate: bool = False) -> str:
    form = "tanh" if approximate else "none"
    return str(target.node("Gelu", [target.name(x, target.dtype)], approximate=form))


@composed(reference.silu)
def silu(x: Array) -> Array:
    return multiply(x, sigmoid(x))


@composed(reference.one_hot)
def one_hot(indices: Array, num_classes: int, dtype: str = "float32") -> Array:
    return astype(equal(expand_dims(indices, -1), np.arange(num_classes, dtype=np.int32)), dtype)


@composed(reference.huber_loss)
def huber_loss(predictions: Array, targets: Array, delta: float = 1.0, reduction: str = "none") -> Array:
    error = subtract(predictions, targets)
    size = abs(error)
    loss = where(less_equal(size, delta), multiply(square(error), 0.5), multiply(subtract(size, 0.5 * delta), delta))
    return mean(loss) if reduction == "mean" else loss


def conv2d(
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> Array:
    if model_of((x, kernel, bias)) is None:
        return reference.conv2d(x, kernel, stride, padding, bias, activation)
    found = blocked_conv2d(x, kernel, stride, padding, bias, activation)
    return _conv2d(x, kernel, stride, padding, bias, activation) if found is None else found


@symbolic(reference.conv2d)
def _conv2d(
    target: Target,
    x: Array,
    kernel: Array,
    stride: int | tuple[int, int] = 1,
    padding: str = "valid",
    bias: Array | None = None,
    activation: str | None = None,
) -> str:
    """The operator of ONNX, which has channels first."""
    model, dtype = target.model, target.dtype
    if isinstance(kernel, Symbol) and kernel.weight is not None:
        filters = model.derived_weight(kernel, "channels_first", _channels_first)
    elif not isinstance(kernel, Symbol):
        filters = model.derived_constant(np.asarray(kernel, dtype), "channels_first", _channels_first)
    else:
        filters = model.node("Transpose", [target.name(kernel, dtype)], perm=[3, 2, 0, 1])
    inputs = [model.transposed(target.name(x, dtype), (0, 3, 1, 2)), filters]
    if bias is not None:
        inputs.append(target.name(bias, dtype))
    steps = [stride, stride] if isinstance(stride, int) else list(stride)
    form = "SAME_UPPER" if padding == "same" else "VALID"
    found = model.node("Conv", inputs, strides=steps, auto_pad=form, kernel_shape=list(kernel.shape[:2]))
    if activation is not None:
        found = model.node(ACTIVATIONS[activation], [found])
    return str(model.node("Transpose", [found], perm=[0, 2, 3, 1]))


def _channels_first(kernel: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))

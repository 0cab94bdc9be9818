"""Convolutions on blocks of channels: what ONNX Runtime makes of a convolution whose weights are constants.

Its optimizer brings constant weights into an order that its kernels like (`com.microsoft.nchwc`), which halves the time
of a convolution; weights that are inputs stay as they are. Here they are brought into that order once per weight
version, by NumPy, and fed to the same operators. The order depends on the processor, so it is tried first: where the
result is not that of the ordinary operator, the ordinary one is used.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.model import BLOCKED_DOMAIN, Model
from rlweave.extensions.onnx_.symbol import EXAMPLES, Symbol
from rlweave.extensions.onnx_.symbolic import Target, at

_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}
#: Sizes of a block that may be: 16 with AVX-512, 8 with AVX2. From the largest: arrays that are padded for it are large
#: enough for the smaller ones.
_BLOCKS = (32, 16, 8, 4)
#: Channels of an input come in multiples of this.
_ALIGNMENT = 4


def blocked_conv2d(
    x: Symbol, kernel: Any, stride: int | tuple[int, int], padding: str, bias: Any, activation: str | None
) -> Symbol | None:
    """See `ops.conv2d`; None where there are no blocks: on this processor, or for these numbers of channels."""
    if not all(
        isinstance(weight, Symbol) and weight.weight is not None for weight in (kernel, bias) if weight is not None
    ):
        return None
    block = block_size()
    channels, filters = kernel.shape[2:]
    if block is None or filters % _ALIGNMENT or (channels >= block and channels % _ALIGNMENT):
        return None
    arguments = (x, kernel, stride, padding, bias, activation)
    examples = [reference.conv2d(*at(arguments, i)) for i in range(EXAMPLES)]
    if examples[0].dtype != np.float32:
        return None
    target = Target(x.model, examples[0])
    model = x.model
    order = functools.partial(ordered_kernel, block=block)
    inputs = [_blocked_input(target, x, channels >= block), model.derived_weight(kernel, f"blocks_{block}", order)]
    if bias is not None:
        inputs.append(model.derived_weight(bias, f"padded_{block}", functools.partial(_padded, axis=0, block=block)))
    result = Symbol(model, _convolved(model, inputs, stride, padding, activation, kernel.shape), examples)
    result.blocked, result.name = (
        result.name,
        model.node("ReorderOutput", [result.name], domain=BLOCKED_DOMAIN, channels=filters, channels_last=1),
    )
    return result


def _convolved(
    model: Model,
    inputs: list[str],
    stride: int | tuple[int, int],
    padding: str,
    activation: str | None,
    kernel: tuple[int, ...],
) -> str:
    attributes: dict[str, Any] = {"strides": [stride, stride] if isinstance(stride, int) else list(stride)}
    attributes["auto_pad"] = "SAME_UPPER" if padding == "same" else "VALID"
    if activation is not None:
        attributes["activation"] = _ACTIVATIONS[activation]
    return str(model.node("Conv", inputs, domain=BLOCKED_DOMAIN, kernel_shape=list(kernel[:2]), **attributes))


def _blocked_input(target: Target, x: Symbol, in_blocks: bool) -> str:
    """Images for a convolution: few channels come as they are, others in blocks (as a convolution leaves them)."""
    if in_blocks and x.blocked is not None:
        return str(x.blocked)
    name = target.name(x, target.dtype)
    if in_blocks:
        return str(target.node("ReorderInput", [name], domain=BLOCKED_DOMAIN, channels_last=1))
    return target.model.transposed(name, (0, 3, 1, 2))


def ordered_kernel(kernel: np.ndarray, block: int) -> np.ndarray:
    """A kernel (k_h, k_w, C_in, C_out) in blocks of filters, and of channels where there are enough of them."""
    kernel = _padded(kernel, 3, block)
    height, width, channels, filters = kernel.shape
    groups = filters // block
    if channels < block:
        parts = kernel.reshape(height, width, channels, groups, block).transpose(3, 2, 0, 1, 4)
    else:
        kernel = _padded(kernel, 2, block)
        channels = kernel.shape[2]
        parts = kernel.reshape(height, width, channels // block, block, groups, block).transpose(4, 2, 0, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(filters, channels, height, width)


def _padded(x: np.ndarray, axis: int, block: int) -> np.ndarray:
    missing = -x.shape[axis] % block
    if not missing:
        return x
    return np.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


@functools.cache
def block_size() -> int | None:
    """How many channels a block has on this processor; None: its convolutions are not to be used."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, 9, 9, 3), np.float32)
    first, second = rng.standard_normal((3, 3, 3, 20), np.float32), rng.standard_normal((2, 2, 20, 12), np.float32)
    bias = rng.standard_normal(20, np.float32)
    wanted = reference.conv2d(reference.conv2d(images, first, 1, "same", bias, "relu"), second, 2)
    for block in _BLOCKS:
        try:
            found = _tried(block, images, first, bias, second)
        except Exception:
            continue
        if found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-4):
            return block
    return None


def _tried(block: int, images: np.ndarray, first: np.ndarray, bias: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Two convolutions in a row, with a size of blocks that may be wrong."""
    from rlweave.extensions.onnx_.session import make_session

    model = Model()
    x = model.node("Transpose", [model.constant(images)], perm=[0, 3, 1, 2])
    weights = {
        model.input("first", np.float32, ordered_kernel(first, block).shape): ordered_kernel(first, block),
        model.input("bias", np.float32, _padded(bias, 0, block).shape): _padded(bias, 0, block),
        model.input("second", np.float32, ordered_kernel(second, block).shape): ordered_kernel(second, block),
    }
    names = list(weights)
    between = _convolved(model, [x, *names[:2]], 1, "same", "relu", first.shape)
    after = _convolved(model, [between, names[2]], 2, "valid", None, second.shape)
    result = model.node("ReorderOutput", [after], domain=BLOCKED_DOMAIN, channels=second.shape[3], channels_last=1)
    content, _ = model.finished([(result, np.float32, None)])
    return np.asarray(make_session(content, quiet=True).run(None, weights)[0])

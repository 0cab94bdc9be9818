"""Shape operators on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlweave.backends.torch_.ops.creation import asarray

Array = Any


def _tensor(x: Array) -> Tensor:
    return x if isinstance(x, Tensor) else asarray(x)


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return _tensor(x).reshape((shape,) if isinstance(shape, int) else tuple(shape))


def expand_dims(x: Array, axis: int) -> Array:
    return _tensor(x).unsqueeze(axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    x = _tensor(x)
    axes = (axis,) if isinstance(axis, int) else axis
    # torch leaves an axis of another size alone; everyone else raises.
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: axes {axes} of shape {tuple(x.shape)} are not all of size 1.")
    return x.squeeze(axes)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return _tensor(x).permute(tuple(axes))


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    return torch.cat([_tensor(array) for array in arrays], axis)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    return torch.stack(_common([_tensor(array) for array in arrays]), axis)


def _common(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors of one dtype; torch.cat promotes by itself, torch.stack does not."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor if tensor.dtype == dtype else tensor.to(dtype) for tensor in tensors]


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    return tuple(torch.unbind(_tensor(x), axis))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return _tensor(x).expand(tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    x = _tensor(x)
    if axis is None:
        axis = tuple(range(x.ndim))
    return torch.flip(x, (axis,) if isinstance(axis, int) else axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return torch.roll(_tensor(x), shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return torch.repeat_interleave(_tensor(x), repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return torch.tile(_tensor(x), tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return torch.sort(_tensor(x), dim=axis, descending=descending, stable=True).values


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return torch.sort(_tensor(x), dim=axis, descending=descending, stable=True).indices.to(torch.int32)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    # Anything but contiguous memory makes torch warn about a copy.
    return torch.searchsorted(_tensor(x1).contiguous(), _tensor(x2).contiguous(), side=side, out_int32=True)


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))

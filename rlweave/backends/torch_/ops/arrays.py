"""Making, reshaping, ordering and indexing arrays on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Array = Any
Shape = int | Sequence[int]


DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


def torch_dtype(dtype: Any) -> torch.dtype:
    """The torch dtype of a name; NumPy and torch dtypes are understood as well."""
    found = DTYPES.get(dtype)
    if found is None:
        found = dtype if isinstance(dtype, torch.dtype) else DTYPES[str(dtype)]
    return found


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(x: Array, dtype: str | None = None) -> Array:
    if isinstance(x, Tensor):
        return x if dtype is None else x.to(torch_dtype(dtype))
    wanted = None if dtype is None else torch_dtype(dtype)
    if isinstance(x, list | tuple) and _holds_tensor(x):
        result = torch.stack([asarray(item) for item in x])
        return result if wanted is None else result.to(wanted)
    if torch.compiler.is_compiling() and hasattr(x, "dtype"):
        # While compiling, NumPy arrays are traced as tensors, which torch.tensor warns about.
        return torch.as_tensor(x, dtype=wanted)
    # torch.tensor copies: a view of a NumPy buffer would change when its owner refills it.
    result = torch.tensor(x, dtype=wanted)
    if wanted is None and not hasattr(x, "dtype"):
        if result.dtype == torch.int64:
            return result.to(torch.int32)
        if result.dtype == torch.float64:
            return result.to(torch.float32)
    return result


def tensor_of(x: Array) -> Tensor:
    """Makes a tensor of anything that is none."""
    return x if isinstance(x, Tensor) else asarray(x)


def _holds_tensor(x: Sequence[Any]) -> bool:
    return any(isinstance(item, Tensor) or (isinstance(item, list | tuple) and _holds_tensor(item)) for item in x)


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return torch.zeros(_shape(shape), dtype=torch_dtype(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return torch.ones(_shape(shape), dtype=torch_dtype(dtype))


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    if hasattr(fill_value, "dtype"):
        return asarray(fill_value, dtype).expand(_shape(shape)).clone()
    return torch.full(_shape(shape), fill_value, dtype=torch_dtype(dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    return torch.arange(start, stop, step, dtype=torch_dtype(dtype))


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    return torch.linspace(start, stop, num, dtype=torch_dtype(dtype))


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    return torch.eye(n_rows, n_rows if n_cols is None else n_cols, dtype=torch_dtype(dtype))


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    return torch.zeros_like(asarray(x), dtype=None if dtype is None else torch_dtype(dtype))


def ones_like(x: Array, dtype: str | None = None) -> Array:
    return torch.ones_like(asarray(x), dtype=None if dtype is None else torch_dtype(dtype))


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    x = asarray(x)
    wanted = x.dtype if dtype is None else torch_dtype(dtype)
    if hasattr(fill_value, "dtype"):
        return asarray(fill_value).to(wanted).expand(x.shape).clone()
    return torch.full_like(x, fill_value, dtype=wanted)


#: Twice as fast as `.to(dtype)`, for the usual dtypes.
_CASTS = {"float32": Tensor.float, "int32": Tensor.int, "int64": Tensor.long, "bool": Tensor.bool}


def astype(x: Array, dtype: str) -> Array:
    x = x if isinstance(x, Tensor) else asarray(x)
    if not x.is_contiguous():  # torch is slow at doing both at once
        x = x.contiguous()
    cast = _CASTS.get(dtype)
    return x.to(torch_dtype(dtype)) if cast is None else cast(x)


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return tensor_of(x).reshape((shape,) if isinstance(shape, int) else tuple(shape))


def expand_dims(x: Array, axis: int) -> Array:
    return tensor_of(x).unsqueeze(axis)


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    x = tensor_of(x)
    axes = (axis,) if isinstance(axis, int) else axis
    # torch leaves an axis of another size alone; everyone else raises.
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: axes {axes} of shape {tuple(x.shape)} are not all of size 1.")
    return x.squeeze(axes)


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return tensor_of(x).permute(tuple(axes))


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    return torch.cat([tensor_of(array) for array in arrays], axis)


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    return torch.stack(_common([tensor_of(array) for array in arrays]), axis)


def _common(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors of one dtype; torch.cat promotes by itself, torch.stack does not."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor if tensor.dtype == dtype else tensor.to(dtype) for tensor in tensors]


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    return tuple(torch.unbind(tensor_of(x), axis))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return tensor_of(x).expand(tuple(shape))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    x = tensor_of(x)
    if axis is None:
        axis = tuple(range(x.ndim))
    return torch.flip(x, (axis,) if isinstance(axis, int) else axis)


def roll(x: Array, shift: int, axis: int) -> Array:
    return torch.roll(tensor_of(x), shift, axis)


def repeat(x: Array, repeats: int, axis: int) -> Array:
    return torch.repeat_interleave(tensor_of(x), repeats, axis)


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    return torch.tile(tensor_of(x), tuple(repetitions))


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return torch.sort(tensor_of(x), dim=axis, descending=descending, stable=True).values


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return torch.sort(tensor_of(x), dim=axis, descending=descending, stable=True).indices.to(torch.int32)


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    # Anything but contiguous memory makes torch warn about a copy.
    return torch.searchsorted(tensor_of(x1).contiguous(), tensor_of(x2).contiguous(), side=side, out_int32=True)


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return x.reshape((math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return x.reshape((*leading, *x.shape[1:]))


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    x, indices = tensor_of(x), tensor_of(indices)
    # index_select copies slices five times as fast as x[indices], but knows one-dimensional indices only.
    if indices.ndim == 1:
        return torch.index_select(x, axis, indices)
    picked = torch.index_select(x, axis, indices.reshape(-1))
    axis = axis % x.ndim
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    return torch.take_along_dim(tensor_of(x), tensor_of(indices).long(), axis)


def take_last(x: Array, indices: Array) -> Array:
    x, indices = tensor_of(x), tensor_of(indices)
    if indices.dtype is not torch.int32 or not _GATHERS_INT32:
        indices = indices.long()
    return torch.gather(x, -1, indices.unsqueeze(-1)).squeeze(-1)


def _gathers_int32() -> bool:
    """Whether this torch takes int32 indices in `gather`, which older ones refuse."""
    try:
        torch.gather(torch.zeros(1), 0, torch.zeros(1, dtype=torch.int32))
    except RuntimeError:
        return False
    return True


_GATHERS_INT32 = _gathers_int32()


def set_at(x: Array, indices: Array, values: Array) -> Array:
    x = tensor_of(x)
    indices, values = _rows(x, indices, values)
    count = indices.shape[0]
    if count > 1:
        winner = _last_writers(indices, x.shape[0])
        # Every duplicate writes the winner's row, so their order does not matter; only the winner gets a gradient.
        is_winner = winner == torch.arange(count, device=indices.device)
        is_winner = is_winner.reshape((count,) + (1,) * (values.ndim - 1))
        values = torch.where(is_winner, values, values.detach().index_select(0, winner))
    return torch.index_put(x, (indices,), values)


def _rows(x: Tensor, indices: Array, values: Array) -> tuple[Tensor, Tensor]:
    """Indices as (K,) int64 and values as (K, ...) of the dtype of x."""
    indices = tensor_of(indices).to(device=x.device, dtype=torch.int64)
    values = tensor_of(values).to(device=x.device, dtype=x.dtype)
    values = values.expand((*indices.shape, *x.shape[1:]))
    return indices.reshape(-1), values.reshape((indices.numel(), *x.shape[1:]))


def _last_writers(indices: Tensor, size: int) -> Tensor:
    """For each position in `indices`, the last position that holds the same index."""
    count = indices.shape[0]
    positions = torch.arange(count, device=indices.device)
    if count * count <= 4 * size + 4096:
        same = indices.unsqueeze(1) == indices
        return torch.where(same, positions, -1).amax(1)
    latest = torch.zeros(size, dtype=torch.int64, device=indices.device)
    return latest.scatter_reduce(0, indices, positions, "amax").index_select(0, indices)


def add_at(x: Array, indices: Array, values: Array) -> Array:
    x = tensor_of(x)
    indices, values = _rows(x, indices, values)
    return torch.index_add(x, 0, indices, values)

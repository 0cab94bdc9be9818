"""Indexing on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlweave.backends.torch_.ops.creation import asarray

Array = Any


def _tensor(x: Array) -> Tensor:
    return x if isinstance(x, Tensor) else asarray(x)


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    x, indices = _tensor(x), _tensor(indices)
    # index_select copies slices five times as fast as x[indices], but knows one-dimensional indices only.
    if indices.ndim == 1:
        return torch.index_select(x, axis, indices)
    picked = torch.index_select(x, axis, indices.reshape(-1))
    axis = axis % x.ndim
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    return torch.take_along_dim(_tensor(x), _tensor(indices).long(), axis)


def take_last(x: Array, indices: Array) -> Array:
    x, indices = _tensor(x), _tensor(indices)
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
    x = _tensor(x)
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
    indices = _tensor(indices).to(device=x.device, dtype=torch.int64)
    values = _tensor(values).to(device=x.device, dtype=x.dtype)
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
    x = _tensor(x)
    indices, values = _rows(x, indices, values)
    return torch.index_add(x, 0, indices, values)

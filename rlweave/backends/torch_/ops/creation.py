"""Creation and conversion on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

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

"""Control flow on torch."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlweave.backends.python_loops import scan_loop
from rlweave.backends.torch_.ops.arrays import asarray, stack, zeros_like
from rlweave.backends.torch_.ops.elementwise import where
from rlweave.tree import tree_map

Array = Any


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    return scan_loop(f, init, xs, length, reverse, asarray, stack, torch.unbind, zeros_like)


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    if isinstance(pred, Tensor) and not readable(pred):
        return tree_map(lambda x1, x2: where(pred, x1, x2), f(*args), g(*args))
    return f(*args) if pred else g(*args)


def readable(pred: Tensor) -> bool:
    """Whether Python may branch on the value: not while compiling, and not where vmap holds many values."""
    return not (torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(pred))


def stop_gradient(x: Array, /) -> Array:
    return x.detach() if isinstance(x, Tensor) else asarray(x)

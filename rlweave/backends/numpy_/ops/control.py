"""Control flow on NumPy."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.numpy_.ops.arrays import asarray, stack, zeros_like
from rlweave.backends.python_loops import scan_loop

Array = Any


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    return scan_loop(f, init, xs, length, reverse, asarray, stack, tuple, zeros_like)


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    return f(*args) if pred else g(*args)


def stop_gradient(x: Array, /) -> Array:
    return np.asarray(x)

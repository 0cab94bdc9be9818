"""Control flow on JAX."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from rlweave.backends.jax_.ops.arrays import asarray

Array = Any


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    return jax.lax.scan(f, jax.tree.map(asarray, init), xs, length, reverse)


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    if isinstance(pred, bool):
        return f(*args) if pred else g(*args)
    return jax.lax.cond(pred, f, g, *args)


stop_gradient = jax.lax.stop_gradient

"""Control flow on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.extensions.tensorflow_ import loops
from rlweave.extensions.tensorflow_.array import TensorFlowArray, tensor_of
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.extensions.tensorflow_.ops.elementwise import of_tensor
from rlweave.tree import tree_map

Array = Any


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    return loops.scan(f, init, xs, length, reverse)


def cond(pred: Array, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    args = tree_map(lambda leaf: TensorFlowArray(tensor_of(leaf)) if hasattr(leaf, "dtype") else leaf, args)
    if isinstance(pred, bool):
        return f(*args) if pred else g(*args)
    return loops.cond(pred, lambda: f(*args), lambda: g(*args))


stop_gradient = of_tensor(tf.stop_gradient)

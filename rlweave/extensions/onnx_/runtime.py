"""ONNX Runtime as a backend that acts: the state is NumPy's, runs are models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave.backends.base import Array, Cell
from rlweave.backends.numpy_.runtime import NumpyBackend
from rlweave.backends.python_loops import python_while
from rlweave.extensions.onnx_.run import OnnxRun
from rlweave.extensions.onnx_.session import set_threads
from rlweave.extensions.onnx_.symbol import Symbol
from rlweave.extensions.onnx_.symbolic import model_of, no_form
from rlweave.tree import tree_map


class OnnxBackend(NumpyBackend):
    """ONNX Runtime: acting only. Abstract evaluation, store and host nodes are those of NumPy."""

    name, extra = "onnx", "onnx"
    functional = True
    immutable = True
    wide = False
    differentiable = False
    acts_only = True
    on_host = False

    def __init__(self) -> None:
        super().__init__()
        from rlweave.extensions.onnx_ import ops

        self.ops = ops

    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        return Cell(path, value, trainable)

    def random_module(self) -> Any:
        from rlweave.extensions.onnx_ import random

        return random

    def portable_random(self, cell: Any) -> Any:
        from rlweave.extensions.onnx_.random import PortableOnHost

        return PortableOnHost(cell)

    def runtime(self) -> dict[str, Any]:
        return {
            "scan": scan,
            "cond": cond,
            "while_loop": _without("graph.while_", python_while),
            "vmap": vmap,
            "copy": lambda x: x if isinstance(x, Symbol) else np.array(x),
            "stop_gradient": lambda x: x,
        }

    def boundary(self, device: str | None = None) -> dict[str, Any]:
        return {
            "numpy_of": np.asarray,
            "copy_numpy_of": np.array,
            "to_host": lambda x: x,
            "staged": lambda x: x,  # a run waits for its results
            "handed": np.array,
        }

    def set_threads(self, threads: int) -> bool:
        set_threads(threads)
        return True

    def compile(
        self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any] = (), **options: Any
    ) -> Callable[..., Any]:
        return OnnxRun(function, states, inputs)


def _without(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        if model_of(args) is None:
            return function(*args)
        raise no_form(what)

    return refuse


def scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, length: int | None, written: Any) -> Any:
    """`graph.scan`; what is written inside is random state only, and a draw inside of a loop says so itself."""
    from rlweave.extensions.onnx_ import ops

    return ops.scan(body, carry, xs, length)


def cond(pred: Any, f: Callable[[], Any], g: Callable[[], Any], written: Any) -> Any:
    """`graph.cond`."""
    from rlweave.extensions.onnx_ import ops

    return ops.cond(pred, f, g)


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: Any, args: Sequence[Any]) -> Any:
    """`graph.vmap`: written out for each of a known number of rows."""
    from rlweave.extensions.onnx_ import ops

    if not isinstance(size, int) or size == 0:
        raise no_form("graph.vmap over an open axis")

    def rows(index: int) -> list[Any]:
        return [
            arg if axis is None else tree_map(lambda x: ops.take(x, np.int32(index), axis), arg)  # noqa: B023
            for arg, axis in zip(args, in_axes, strict=True)
        ]

    results = [body(*rows(index)) for index in range(size)]
    return tree_map(lambda *xs: ops.stack(xs), *results)


BACKEND = OnnxBackend()

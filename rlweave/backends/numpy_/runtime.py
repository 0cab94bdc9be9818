"""NumPy: cells, abstract evaluation on small real arrays, control flow as Python loops."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave.backends.base import (
    Array,
    ArrayUseError,
    Backend,
    Cell,
    Evaluation,
    Suspect,
    is_user_file,
    number_error,
    truth_error,
    user_location,
)
from rlweave.backends.python_loops import python_scan, python_while
from rlweave.errors import BackendError
from rlweave.ops import OP_NAMES
from rlweave.tree import tree_leaves, tree_map


class NumpyCell(Cell):
    """A cell that owns its array: what is assigned is copied, rows are written in place."""

    __slots__ = ()

    def assign(self, x: Array) -> None:
        self.value = np.array(x, dtype=self.dtype)

    def assign_at(self, indices: Array, x: Array) -> None:
        self.value[indices] = x


class _Watched(np.ndarray):
    """An array that reports every result with the batch axis twice."""

    _watch: _Watch | None = None

    def __array_finalize__(self, source: Any) -> None:
        self._watch = getattr(source, "_watch", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        watch = next(x._watch for x in (*inputs, *(out or ())) if isinstance(x, _Watched) and x._watch is not None)
        plain = [x.view(np.ndarray) if isinstance(x, _Watched) else x for x in inputs]
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, _Watched) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        return watch.see(result, plain)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        watch = self._watch
        assert watch is not None
        args, kwargs = _unwatch(args), _unwatch(kwargs)
        return watch.see(func(*args, **kwargs), args)

    def __getitem__(self, key: Any) -> Any:
        return self._seen(self.view(np.ndarray)[_unwatch(key)], key)

    def take(self, indices: Any, *args: Any, **kwargs: Any) -> Any:
        return self._seen(self.view(np.ndarray).take(_unwatch(indices), *args, **kwargs), indices)

    def dot(self, other: Any, *args: Any) -> Any:
        return self._seen(self.view(np.ndarray).dot(_unwatch(other), *args), other)

    def __bool__(self) -> bool:
        self._refuse(truth_error)
        return bool(self.view(np.ndarray))

    def __int__(self) -> int:
        self._refuse(number_error)
        return int(self.view(np.ndarray))

    def __float__(self) -> float:
        self._refuse(number_error)
        return float(self.view(np.ndarray))

    def __index__(self) -> int:
        self._refuse(number_error)
        return self.view(np.ndarray).__index__()

    def item(self, *args: Any) -> Any:
        self._refuse(number_error)
        return self.view(np.ndarray).item(*args)

    def tolist(self) -> Any:
        self._refuse(number_error)
        return self.view(np.ndarray).tolist()

    def _refuse(self, error: Callable[[], ArrayUseError]) -> None:
        """What a graph function may not ask; operators are NumPy's own, and may."""
        if self._watch is not None and not self._watch.host and is_user_file(sys._getframe(2).f_code.co_filename):
            raise error()

    def _seen(self, result: Any, other: Any) -> Any:
        assert self._watch is not None
        return self._watch.see(result, [self.view(np.ndarray), *tree_leaves(other)])


def _unwatch(x: Any) -> Any:
    if isinstance(x, _Watched):
        return x.view(np.ndarray)
    if isinstance(x, list | tuple):
        items = [_unwatch(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: _unwatch(item) for key, item in x.items()}
    return x


class _Watch:
    def __init__(self, batch_sizes: frozenset[int], host: bool = False) -> None:
        self.batch_sizes, self.host = batch_sizes, host
        self.suspects: list[Suspect] = []

    def wrap(self, x: np.ndarray) -> np.ndarray:
        watched = x.view(_Watched)
        watched._watch = self
        return watched

    def see(self, result: Any, operands: Any) -> Any:
        if isinstance(result, dict):
            return {key: self.see(item, operands) for key, item in result.items()}
        if isinstance(result, tuple | list):
            items = [self.see(item, operands) for item in result]
            return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
        if isinstance(result, np.generic):
            return self.wrap(np.asarray(result))
        if not isinstance(result, np.ndarray):
            return result
        if any(result.shape.count(size) > 1 for size in self.batch_sizes):
            shapes = tuple(x.shape for x in operands if isinstance(x, np.ndarray))
            if not any(shape == result.shape for shape in shapes):
                self.suspects.append(Suspect(result.shape, shapes, user_location()))
        return self.wrap(result)


class NumpyBackend(Backend):
    """NumPy: the host, and light acting; no gradients."""

    name, extra = "numpy", ""
    functional = False
    differentiable = False
    on_host = True
    maps_devices = False
    evaluated_types = (_Watched,)

    def __init__(self) -> None:
        from rlweave.backends.numpy_ import ops

        self.ops = ops
        self._watch = _Watch(frozenset())

    def from_numpy(self, x: np.ndarray, device: str | None = None) -> Array:
        return np.array(x)

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.array(x)

    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        return NumpyCell(path, value, trainable)

    def random_module(self) -> Any:
        from rlweave.backends.numpy_ import random

        return random

    def watch_ops(self, bound: Any) -> None:
        # an operator may hand its arguments to functions of NumPy that know nothing of subclasses
        def watched(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return self._watch.see(_unwatch(function(*args, **kwargs)), tree_leaves((args, kwargs)))

            return call

        for name in OP_NAMES:
            setattr(bound, name, watched(getattr(bound, name)))

    def evaluate(
        self,
        run: Callable[[list[Array]], list[Array]],
        specs: Sequence[tuple[tuple[int, ...], str]],
        fill: Sequence[int],
        batch_sizes: frozenset[int],
        host: bool = False,
    ) -> Evaluation:
        watch = self._watch = _Watch(batch_sizes, host)
        plain = [
            np.broadcast_to(np.array(value, dtype), shape)
            if int(np.prod(shape)) > 65536
            else np.full(shape, value, dtype)
            for (shape, dtype), value in zip(specs, fill, strict=True)
        ]
        for x in plain:
            x.flags.writeable = False  # `x += 1` on an argument would change the caller's array
        with np.errstate(all="ignore"):
            results = [np.asarray(_unwatch(x)) for x in run([watch.wrap(x) for x in plain])]
        aliases = [{i for i, x in enumerate(plain) if np.may_share_memory(x, result)} for result in results]
        return Evaluation([(x.shape, str(x.dtype)) for x in results], watch.suspects, aliases)

    def runtime(self) -> dict[str, Any]:
        return {
            "scan": scan,
            "cond": cond,
            "while_loop": python_while,
            "vmap": vmap,
            "copy": np.array,
            "gradient": _no_gradient,
        }

    def boundary(self, device: str | None = None) -> dict[str, Any]:
        return {"array": np.array}


def _no_gradient(*args: Any, **kwargs: Any) -> Any:
    raise BackendError(
        "the NumPy backend has no gradients",
        where="a gradient node",
        fix='run this method on backend="jax" or backend="torch"',
    )


scan = functools.partial(python_scan, np.stack, lambda x: np.zeros(x.shape[1:], x.dtype), np.array)


def cond(pred: Any, f: Callable[[], Any], g: Callable[[], Any], written: Any) -> Any:
    """`graph.cond`: runs one branch."""
    return f() if bool(pred) else g()


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: int, args: Sequence[Any]) -> Any:
    """`graph.vmap`: a loop over the new axis; results are stacked in front."""

    def rows(index: int) -> list[Any]:
        return [
            arg if axis is None else tree_map(lambda x: np.take(x, index, axis), arg)  # noqa: B023 - used at once
            for arg, axis in zip(args, in_axes, strict=True)
        ]

    if size == 0:
        args = [
            arg if axis is None else tree_map(lambda x: np.zeros(np.where(x.shape, x.shape, 1), x.dtype), arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        return tree_map(lambda x: np.stack([x])[:0], body(*rows(0)))
    results = [body(*rows(index)) for index in range(size)]
    return tree_map(lambda *xs: np.stack(xs), *results)


BACKEND = NumpyBackend()

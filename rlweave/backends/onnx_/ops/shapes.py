"""Shape operators as ONNX nodes."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.backends.onnx_.ops.elementwise import less, less_equal
from rlweave.backends.onnx_.ops.reductions import sum as total
from rlweave.backends.onnx_.symbol import Size, Symbol
from rlweave.backends.onnx_.symbolic import Target, composed, symbolic

Array = Any


def _axes(target: Target, axes: Sequence[int]) -> str:
    return target.model.constant(list(axes), np.int64)


@symbolic(reference.reshape)
def reshape(target: Target, x: Array, shape: int | Sequence[int]) -> str:
    sizes: list[Any] = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    before: tuple[Any, ...] = x.shape if isinstance(x, Symbol) else np.shape(x)
    if any(type(n) is int and n == 0 for n in sizes):  # an array of nothing: here 0 means 0
        known = target.example.shape
        sizes = [known[i] if type(n) is int and n == -1 else n for i, n in enumerate(sizes)]
        return str(target.node("Reshape", [target.name(x), target.shape(sizes)], allowzero=1))
    # 0 keeps an axis and -1 is what is left: most shapes need no arithmetic on sizes
    for position, n in enumerate(sizes):
        kept = position < len(before) and isinstance(before[position], Size) and isinstance(n, Size)
        if kept and before[position].values == n.values:
            sizes[position] = 0
    if sum(isinstance(n, Size) for n in sizes) == 1 and -1 not in sizes:
        sizes = [-1 if isinstance(n, Size) else n for n in sizes]
    return str(target.node("Reshape", [target.name(x), target.shape(sizes)]))


@symbolic(reference.expand_dims)
def expand_dims(target: Target, x: Array, axis: int) -> str:
    return str(target.node("Unsqueeze", [target.name(x), _axes(target, [axis])]))


@symbolic(reference.squeeze)
def squeeze(target: Target, x: Array, axis: int | tuple[int, ...]) -> str:
    axes = [axis] if isinstance(axis, int) else axis
    return str(target.node("Squeeze", [target.name(x), _axes(target, axes)]))


@symbolic(reference.permute_dims)
def permute_dims(target: Target, x: Array, axes: Sequence[int]) -> str:
    return str(target.node("Transpose", [target.name(x)], perm=[axis % x.ndim for axis in axes]))


Symbol.T = property(lambda x: permute_dims(x, range(x.ndim)[::-1]))


@symbolic(reference.concat)
def concat(target: Target, arrays: Sequence[Array], axis: int = 0) -> str:
    return str(target.node("Concat", [target.name(x, target.dtype) for x in arrays], axis=axis))


@symbolic(reference.stack)
def stack(target: Target, arrays: Sequence[Array], axis: int = 0) -> str:
    place = _axes(target, [axis])
    rows = [target.node("Unsqueeze", [target.name(x, target.dtype), place]) for x in arrays]
    return str(target.node("Concat", rows, axis=axis))


@composed(reference.unstack)
def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    axis %= x.ndim
    key = (slice(None),) * axis
    length = x.shape[axis]
    return tuple([x[(*key, i)] for i in range(length)])


@symbolic(reference.broadcast_to)
def broadcast_to(target: Target, x: Array, shape: Sequence[int]) -> str:
    return str(target.node("Expand", [target.name(x), target.shape(tuple(shape))]))


@composed(reference.flip)
def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    flipped = {a % x.ndim for a in axes}
    return x[tuple([slice(None, None, -1) if a in flipped else slice(None) for a in range(x.ndim)])]


@symbolic(reference.roll)
def roll(target: Target, x: Array, shift: int, axis: int) -> str:
    # the end comes to the front: a cut at -shift, which may lie anywhere
    name, place = target.name(x), _axes(target, [axis])
    size = target.node("Shape", [name], start=axis % x.ndim, end=axis % x.ndim + 1)
    cut = target.node("Mod", [target.model.constant([-shift], np.int64), size])
    end = target.model.constant([np.iinfo(np.int64).max], np.int64)
    front = target.node("Slice", [name, target.model.constant([0], np.int64), cut, place])
    return str(target.node("Concat", [target.node("Slice", [name, cut, end, place]), front], axis=axis))


@composed(reference.repeat)
def repeat(x: Array, repeats: int, axis: int) -> Array:
    axis %= x.ndim
    shape = x.shape
    wide = broadcast_to(expand_dims(x, axis + 1), (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


@symbolic(reference.tile)
def tile(target: Target, x: Array, repetitions: Sequence[int]) -> str:
    name, ndim = target.name(x), len(x.shape)
    if len(repetitions) > ndim:
        name = target.node("Unsqueeze", [name, _axes(target, range(len(repetitions) - ndim))])
    counts = (1,) * (ndim - len(repetitions)) + tuple(repetitions)
    return str(target.node("Tile", [name, target.shape(counts)]))


def _ordered(target: Target, x: Array, axis: int, descending: bool) -> Any:
    """Sorted values and their indices; TopK puts the smaller index first where values are equal."""
    name = target.name(x)
    size = target.node("Shape", [name], start=axis % x.ndim, end=axis % x.ndim + 1)
    return target.node("TopK", [name, size], outputs=2, axis=axis, largest=int(descending), sorted=1)


@symbolic(reference.sort)
def sort(target: Target, x: Array, axis: int = -1, descending: bool = False) -> str:
    return str(_ordered(target, x, axis, descending)[0])


@symbolic(reference.argsort)
def argsort(target: Target, x: Array, axis: int = -1, descending: bool = False) -> str:
    return target.model.cast(_ordered(target, x, axis, descending)[1], target.dtype)


@composed(reference.searchsorted)
def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    compare = less if side == "left" else less_equal
    return total(compare(x1, expand_dims(x2, -1)), axis=-1)


@composed(reference.fold_ranks)
def fold_ranks(x: Array, ranks: int = 2) -> Array:
    shape = x.shape
    return reshape(x, (math.prod(shape[:ranks]), *shape[ranks:]))


@composed(reference.unfold_ranks)
def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    return reshape(x, (*leading, *x.shape[1:]))

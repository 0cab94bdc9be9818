"""Making, reshaping, ordering and indexing arrays as ONNX nodes.

Without a symbol among the sizes, arrays that are made are constants.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.ops.elementwise import less, less_equal
from rlweave.extensions.onnx_.ops.reductions import sum as total
from rlweave.extensions.onnx_.symbol import Size, Symbol
from rlweave.extensions.onnx_.symbolic import Operator, Target, composed, no_form, symbolic, without_form

Array = Any


@symbolic(reference.asarray)
def asarray(target: Target, x: Array, dtype: str | None = None) -> str:
    if isinstance(x, (Symbol, Size)):
        return target.name(x, target.dtype)
    return target.name(stack([asarray(item) for item in x]), target.dtype)


@symbolic(reference.astype)
def astype(target: Target, x: Array, dtype: str) -> str:
    return target.name(x, target.dtype)


def _filled(function: Operator, number: int) -> Operator:
    @symbolic(function)
    def write(target: Target, shape: Any, dtype: str = "float32") -> str:
        sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
        return str(target.node("Expand", [target.model.constant(number, target.dtype), target.shape(sizes)]))

    return write


zeros = _filled(reference.zeros, 0)
ones = _filled(reference.ones, 1)


@symbolic(reference.full)
def full(target: Target, shape: Any, fill_value: Array, dtype: str = "float32") -> str:
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return str(target.node("Expand", [target.name(fill_value, target.dtype), target.shape(sizes)]))


@symbolic(reference.arange)
def arange(target: Target, start: Any, stop: Any = None, step: Any = 1, dtype: str = "int32") -> str:
    if stop is None:
        start, stop = 0, start
    return str(target.node("Range", [target.name(x, target.dtype) for x in (start, stop, step)]))


linspace = without_form(reference.linspace)
eye = without_form(reference.eye)


def _like(function: Operator, number: int) -> Operator:
    @symbolic(function)
    def write(target: Target, x: Array, dtype: str | None = None) -> str:
        return _expanded(target, x, target.model.constant(number, target.dtype))

    return write


def _expanded(target: Target, x: Array, value: str) -> str:
    return str(target.node("Expand", [value, target.node("Shape", [target.name(x)])]))


zeros_like = _like(reference.zeros_like, 0)
ones_like = _like(reference.ones_like, 1)


@symbolic(reference.full_like)
def full_like(target: Target, x: Array, fill_value: Array, dtype: str | None = None) -> str:
    return _expanded(target, x, target.name(fill_value, target.dtype))


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


_END = np.iinfo(np.int64).max


@symbolic(reference.take)
def take(target: Target, x: Array, indices: Array, axis: int = 0) -> str:
    return str(target.node("Gather", [target.name(x), target.name(indices, np.int64)], axis=axis))


@symbolic(reference.take_along_axis)
def take_along_axis(target: Target, x: Array, indices: Array, axis: int = -1) -> str:
    axis %= len(x.shape)
    sizes = list(x.shape)
    sizes[axis] = indices.shape[axis]
    wanted = target.node("Expand", [target.name(indices, np.int64), target.shape(sizes)])
    counts = list(x.shape)
    name = target.name(x)
    if any(type(n) is int and n == 1 for n in counts):
        # values may broadcast as well
        counts = [m if type(n) is int and n == 1 else n for n, m in zip(counts, indices.shape, strict=True)]
        counts[axis] = x.shape[axis]
        name = target.node("Expand", [name, target.shape(counts)])
        counts[axis] = indices.shape[axis]
        wanted = target.node("Expand", [wanted, target.shape(counts)])
    return str(target.node("GatherElements", [name, wanted], axis=axis))


@symbolic(reference.take_last)
def take_last(target: Target, x: Array, indices: Array) -> str:
    last = target.model.constant([-1], np.int64)
    wanted = target.node("Unsqueeze", [target.name(indices, np.int64), last])
    return str(target.node("Squeeze", [target.node("GatherElements", [target.name(x), wanted], axis=-1), last]))


set_at = without_form(reference.set_at)
add_at = without_form(reference.add_at)


@composed(operator.getitem)
def picked(x: Array, key: Any) -> Array:
    """`x[key]` for integers, slices, new axes, and one array of integers."""
    keys = list(key) if isinstance(key, tuple) else [key]
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if any(k is Ellipsis for k in keys):
        place = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (x.ndim - used)
    else:
        keys += [slice(None)] * (x.ndim - used)
    old = [k for k in keys if k is not None]
    if any(isinstance(k, slice) and k != slice(None) for k in old):
        x = _sliced(x, tuple([k if isinstance(k, slice) else slice(None) for k in old]))
    arrays = [axis for axis, k in enumerate(old) if not isinstance(k, slice) and not _is_number(k)]
    if len(arrays) > 1 or (arrays and _is_mask(old[arrays[0]])) or (arrays and len(old) < len(keys)):
        raise no_form("indexing with several arrays, or with booleans,")
    for axis in reversed(range(len(old))):
        if not isinstance(old[axis], slice):
            wanted = old[axis] if axis in arrays else int(old[axis])
            x = take(x, asarray(wanted) if axis in arrays else np.int64(wanted), axis)
    position = 0
    for k in keys:
        if k is None:
            x = expand_dims(x, position)
            position += 1
        elif isinstance(k, slice):
            position += 1
    return x


Symbol.__getitem__ = picked  # type: ignore[method-assign]


def _is_number(key: Any) -> bool:
    return isinstance(key, (int, np.integer)) and not isinstance(key, bool)


def _is_mask(key: Any) -> bool:
    return isinstance(key, bool) or getattr(key, "dtype", None) == np.bool_


def _sliced(x: Symbol, keys: tuple[slice, ...]) -> Symbol:
    """One Slice node for all axes that are cut."""

    def number(n: Any, example: int) -> Any:
        return n.values[example] if isinstance(n, Size) else n

    examples = []
    for i, example in enumerate(x.examples):
        examples.append(example[tuple([slice(number(k.start, i), number(k.stop, i), k.step) for k in keys])])
    target = Target(x.model, examples[0])
    cut = [(axis, k) for axis, k in enumerate(keys) if k != slice(None)]
    steps = [1 if k.step is None else k.step for _, k in cut]
    starts = [(0 if s > 0 else _END) if k.start is None else k.start for (_, k), s in zip(cut, steps, strict=True)]
    ends = [(_END if s > 0 else -_END) if k.stop is None else k.stop for (_, k), s in zip(cut, steps, strict=True)]
    constant = x.model.constant
    inputs = [x.name, target.shape(starts), target.shape(ends)]
    inputs += [constant([axis for axis, _ in cut], np.int64), constant(steps, np.int64)]
    return Symbol(x.model, str(target.node("Slice", inputs)), examples)

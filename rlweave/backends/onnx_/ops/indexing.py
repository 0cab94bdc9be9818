"""Indexing as ONNX nodes."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.backends.onnx_.ops.creation import asarray
from rlweave.backends.onnx_.ops.shapes import expand_dims
from rlweave.backends.onnx_.symbol import Size, Symbol
from rlweave.backends.onnx_.symbolic import Target, composed, no_form, symbolic, without_form

Array = Any

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

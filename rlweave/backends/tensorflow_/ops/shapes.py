"""Shape operators on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlweave.backends.tensorflow_.array import OpenAxisError, TensorFlowArray, common, operands, shape_tensor, tensor_of
from rlweave.backends.tensorflow_.framework import tf

Array = Any


def _reshaped(x: Any, shape: Any) -> Array:
    sizes = list(shape) if isinstance(shape, Sequence) else [shape]
    symbolic = [i for i, n in enumerate(sizes) if isinstance(n, TensorFlowArray)]
    known = [n for n in sizes if not isinstance(n, TensorFlowArray)]
    if len(symbolic) == 1 and -1 not in known and 0 not in known:
        # what TensorFlow works out by itself, and then knows the other axes
        sizes[symbolic[0]] = -1
    result = tf.reshape(x, shape_tensor(sizes))
    return TensorFlowArray(result)


def reshape(x: Array, shape: int | Sequence[int]) -> Array:
    return _reshaped(tensor_of(x), shape)


def expand_dims(x: Array, axis: int) -> Array:
    return TensorFlowArray(tf.expand_dims(tensor_of(x), axis))


def squeeze(x: Array, axis: int | tuple[int, ...]) -> Array:
    return TensorFlowArray(tf.squeeze(tensor_of(x), [axis] if isinstance(axis, int) else list(axis)))


def permute_dims(x: Array, axes: Sequence[int]) -> Array:
    return TensorFlowArray(tf.transpose(tensor_of(x), list(axes)))


def concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    return TensorFlowArray(tf.concat(common([tensor_of(array) for array in arrays]), axis))


def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    return TensorFlowArray(tf.stack(common([tensor_of(array) for array in arrays]), axis))


def unstack(x: Array, axis: int = 0) -> tuple[Array, ...]:
    x = tensor_of(x)
    if x.shape[axis] is None:
        raise OpenAxisError("the length of an open axis")
    return tuple([TensorFlowArray(item) for item in tf.unstack(x, axis=axis)])


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    return TensorFlowArray(tf.broadcast_to(tensor_of(x), shape_tensor(shape)))


def flip(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    x = tensor_of(x)
    axes = range(x.shape.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    return TensorFlowArray(tf.reverse(x, list(axes)))


def roll(x: Array, shift: int, axis: int) -> Array:
    return TensorFlowArray(tf.roll(tensor_of(x), tensor_of(shift, tf.int32), axis))


def repeat(x: Array, repeats: int, axis: int) -> Array:
    array = TensorFlowArray(tensor_of(x))
    axis = axis % array.ndim
    shape = array.shape
    multiples = [1] * (array.ndim + 1)
    multiples[axis + 1] = repeats
    repeated = tf.tile(tf.expand_dims(array.tensor, axis + 1), shape_tensor(multiples))
    return _reshaped(repeated, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def tile(x: Array, repetitions: Sequence[int]) -> Array:
    x, multiples = tensor_of(x), list(repetitions)
    multiples = [1] * (x.shape.rank - len(multiples)) + multiples
    for _ in range(len(multiples) - x.shape.rank):
        x = tf.expand_dims(x, 0)
    return TensorFlowArray(tf.tile(x, shape_tensor(multiples)))


def _direction(descending: bool) -> str:
    return "DESCENDING" if descending else "ASCENDING"


def _sortable(x: Any) -> Any:
    """What TensorFlow sorts: it negates, which small unsigned integers and truth values do not bear."""
    return tf.cast(x, tf.int32) if x.dtype in (tf.bool, tf.uint8) else x


def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.cast(tf.sort(_sortable(x), axis, _direction(descending)), x.dtype))


def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return TensorFlowArray(tf.argsort(_sortable(tensor_of(x)), axis, _direction(descending), stable=True))


def searchsorted(x1: Array, x2: Array, side: str = "left") -> Array:
    edges, values = operands(x1, x2)
    found = tf.searchsorted(edges, tf.reshape(values, (-1,)), side, tf.int32)
    return TensorFlowArray(tf.reshape(found, tf.shape(values) if None in values.shape.as_list() else values.shape))


def fold_ranks(x: Array, ranks: int = 2) -> Array:
    array = TensorFlowArray(tensor_of(x))
    shape = array.shape
    return _reshaped(array.tensor, (math.prod(shape[:ranks]), *shape[ranks:]))


def unfold_ranks(x: Array, leading: Sequence[int]) -> Array:
    array = TensorFlowArray(tensor_of(x))
    return _reshaped(array.tensor, (*leading, *array.shape[1:]))

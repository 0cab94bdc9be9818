"""Making, reshaping, ordering and indexing arrays on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave.extensions.tensorflow_.array import (
    OpenAxisError,
    TensorFlowArray,
    cast,
    common,
    dtype_of,
    operands,
    shape_tensor,
    tensor_of,
)
from rlweave.extensions.tensorflow_.framework import tf

Array = Any
Shape = int | Sequence[int]


def asarray(x: Array, dtype: str | None = None) -> Array:
    return TensorFlowArray(tensor_of(x, None if dtype is None else dtype_of(dtype)))


def _filled(shape: Shape, value: Array, dtype: Any) -> Array:
    sizes = shape_tensor(shape)
    if isinstance(sizes, tuple) and isinstance(value, bool | int | float):
        return TensorFlowArray(tf.constant(dtype.as_numpy_dtype(value), dtype, sizes))
    return TensorFlowArray(tf.broadcast_to(tensor_of(value, dtype), sizes))


def zeros(shape: Shape, dtype: str = "float32") -> Array:
    return _filled(shape, 0, dtype_of(dtype))


def ones(shape: Shape, dtype: str = "float32") -> Array:
    return _filled(shape, 1, dtype_of(dtype))


def full(shape: Shape, fill_value: Array, dtype: str = "float32") -> Array:
    return _filled(shape, tensor_of(fill_value, dtype_of(dtype)), dtype_of(dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "int32") -> Array:
    if stop is None:
        start, stop = 0, start
    wanted = dtype_of(dtype)
    if not any(isinstance(bound, TensorFlowArray) for bound in (start, stop, step)):
        numbers: Any = np.arange(start, stop, step, np.dtype(wanted.as_numpy_dtype))  # type: ignore[call-overload]
        return TensorFlowArray(tf.constant(numbers))
    inner = wanted if wanted in (tf.int32, tf.float32) else tf.int32
    bounds = [tensor_of(bound, inner) for bound in (start, stop, step)]
    return TensorFlowArray(tf.cast(tf.range(*bounds), wanted))


def linspace(start: float, stop: float, num: int, dtype: str = "float32") -> Array:
    wanted = dtype_of(dtype)
    if not any(isinstance(bound, TensorFlowArray) for bound in (start, stop, num)):
        return TensorFlowArray(tf.constant(np.linspace(start, stop, num, dtype=wanted.as_numpy_dtype)))
    between = tf.linspace(tensor_of(start, tf.float32), tensor_of(stop, tf.float32), tensor_of(num, tf.int32))
    return TensorFlowArray(tf.cast(between, wanted))


def eye(n_rows: int, n_cols: int | None = None, dtype: str = "float32") -> Array:
    rows, columns = (None if n is None else tensor_of(n, tf.int32) for n in (n_rows, n_cols))
    if isinstance(n_rows, int) and not isinstance(n_cols, TensorFlowArray):
        rows, columns = n_rows, n_cols
    return TensorFlowArray(cast(tf.eye(rows, columns), dtype_of(dtype)))


def zeros_like(x: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.zeros_like(x, x.dtype if dtype is None else dtype_of(dtype)))


def ones_like(x: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.ones_like(x, x.dtype if dtype is None else dtype_of(dtype)))


def full_like(x: Array, fill_value: Array, dtype: str | None = None) -> Array:
    x = tensor_of(x)
    value = tensor_of(fill_value, x.dtype if dtype is None else dtype_of(dtype))
    return TensorFlowArray(tf.broadcast_to(value, tf.shape(x)))


def astype(x: Array, dtype: str) -> Array:
    return TensorFlowArray(tensor_of(x, dtype_of(dtype)))


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


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    return TensorFlowArray(tf.gather(tensor_of(x), _countable(indices), axis=axis))


def _countable(indices: Array) -> Any:
    indices = tensor_of(indices)
    return indices if indices.dtype == tf.int32 else tf.cast(indices, tf.int32)


def take_along_axis(x: Array, indices: Array, axis: int = -1) -> Array:
    x, indices = tensor_of(x), _countable(indices)
    rank = x.shape.rank
    axis = axis % rank
    order = [i for i in range(rank) if i != axis] + [axis]
    if axis != rank - 1:
        x, indices = tf.transpose(x, order), tf.transpose(indices, order)
    if x.shape[:-1].as_list() != indices.shape[:-1].as_list():
        leading = tf.broadcast_dynamic_shape(tf.shape(x)[:-1], tf.shape(indices)[:-1])
        x = tf.broadcast_to(x, tf.concat([leading, tf.shape(x)[-1:]], 0))
        indices = tf.broadcast_to(indices, tf.concat([leading, tf.shape(indices)[-1:]], 0))
    result = tf.gather(x, indices, batch_dims=rank - 1)
    return TensorFlowArray(result if axis == rank - 1 else tf.transpose(result, np.argsort(order).tolist()))


def take_last(x: Array, indices: Array) -> Array:
    x = tensor_of(x)
    return TensorFlowArray(tf.gather(x, _countable(indices), batch_dims=x.shape.rank - 1))


def _unless_empty(x: Any, scatter: Callable[[], Any]) -> Array:
    """What `scatter` gives, or x where its rows have no numbers: TensorFlow's scatter refuses to write nothing."""
    features = x.shape[1:].as_list()
    if 0 in features:
        return TensorFlowArray(tf.identity(x))
    if None in features:
        return TensorFlowArray(tf.cond(tf.equal(tf.size(x), 0), lambda: tf.identity(x), scatter))
    return TensorFlowArray(scatter())


def set_at(x: Array, indices: Array, values: Array) -> Array:
    x = tensor_of(x)
    indices, values = _rows(x, indices, values)
    if indices.shape[0] != 1:
        winner = _last_writers(indices, x)
        # Every duplicate writes the winner's row, so their order does not matter; only the winner gets a gradient.
        is_winner = tf.equal(winner, tf.range(tf.size(indices)))
        is_winner = tf.reshape(is_winner, [-1] + [1] * (x.shape.rank - 1))
        values = tf.where(is_winner, values, tf.gather(tf.stop_gradient(values), winner))
    return _unless_empty(x, lambda: tf.tensor_scatter_nd_update(x, tf.expand_dims(indices, 1), values))


def _rows(x: Any, indices: Array, values: Array) -> tuple[Any, Any]:
    """Indices as (K,) and values as (K, ...) of the dtype of x."""
    indices = TensorFlowArray(_countable(indices))
    feature = TensorFlowArray(x).shape[1:]
    values = tf.broadcast_to(tensor_of(values, x.dtype), shape_tensor((*indices.shape, *feature)))
    flat = tf.reshape(indices.tensor, (-1,))
    return flat, tf.reshape(values, shape_tensor((TensorFlowArray(flat).shape[0], *feature)))


def _last_writers(indices: Any, x: Any) -> Any:
    """For each position in `indices`, the last position that holds the same index."""
    positions = tf.range(tf.size(indices))
    latest = tf.tensor_scatter_nd_max(tf.zeros(tf.shape(x)[:1], tf.int32), tf.expand_dims(indices, 1), positions)
    return tf.gather(latest, indices)


def add_at(x: Array, indices: Array, values: Array) -> Array:
    x = tensor_of(x)
    indices, values = _rows(x, indices, values)
    return _unless_empty(x, lambda: tf.tensor_scatter_nd_add(x, tf.expand_dims(indices, 1), values))


def picked(array: TensorFlowArray, key: Any) -> TensorFlowArray:
    """`array[key]` as NumPy means it: numbers, slices, `None`, `...`, one mask, or arrays of integers."""
    x = array.tensor
    keys = [_plain(item) for item in (key if isinstance(key, tuple) else (key,))]
    arrays = [i for i, item in enumerate(keys) if isinstance(item, tf.Tensor) and item.shape.rank != 0]
    if not arrays:
        return TensorFlowArray(x[tuple(keys)])
    if len(keys) == 1 and keys[0].dtype == tf.bool:
        return TensorFlowArray(tf.boolean_mask(x, keys[0]))
    if any(keys[i].dtype == tf.bool for i in arrays):
        raise NotImplementedError("TensorFlow: a mask among other indices; use ops.where, or the mask alone")
    if arrays == list(range(len(keys))) and len(arrays) > 1:
        indices = [_counted_from_start(keys[i], x, i) for i in arrays]
        sizes = indices[0]
        for other in indices[1:]:
            sizes = tf.zeros_like(sizes) + tf.zeros_like(other)
        return TensorFlowArray(tf.gather_nd(x, tf.stack([index + tf.zeros_like(sizes) for index in indices], -1)))
    if len(arrays) > 1:
        raise NotImplementedError("TensorFlow: several arrays among other indices; index in two steps")
    index, place = keys[arrays[0]], arrays[0]
    keys[place] = slice(None)
    if Ellipsis in [item for item in keys[:place] if not isinstance(item, tf.Tensor)]:
        axis = -1 - sum(item is None or isinstance(item, slice) for item in keys[place + 1 :])
    else:
        axis = sum(item is None or isinstance(item, slice) for item in keys[:place])
    x = x[tuple(keys)] if len(keys) > 1 else x
    return TensorFlowArray(tf.gather(x, _counted_from_start(index, x, axis), axis=axis))


TensorFlowArray.__getitem__ = picked  # type: ignore[method-assign]


def _plain(item: Any) -> Any:
    """One index for TensorFlow."""
    if isinstance(item, slice):
        return slice(*[_plain(bound) for bound in (item.start, item.stop, item.step)])
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, list | np.ndarray | TensorFlowArray | tf.Tensor):
        return tensor_of(item)
    return item


def _counted_from_start(index: Any, x: Any, axis: int) -> Any:
    """Indices of which negative ones count from the end."""
    index = _countable(TensorFlowArray(index))
    return tf.where(index < 0, index + tf.shape(x)[axis], index)

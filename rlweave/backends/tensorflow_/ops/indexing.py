"""Indexing on TensorFlow."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.tensorflow_.array import TensorFlowArray, shape_tensor, tensor_of
from rlweave.backends.tensorflow_.framework import tf

Array = Any


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

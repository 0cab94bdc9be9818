"""Threefry as one function of TensorFlow, which each draw calls.

Written out, its hundred operations are most of the graph of a program that draws in several places, and of the time
that tracing takes; runs are as fast, as TensorFlow puts the function in place of its calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rlweave.backends.portable_random import threefry_2x32
from rlweave.extensions.tensorflow_ import ops
from rlweave.extensions.tensorflow_.array import Array, TensorFlowArray, tensor_of
from rlweave.extensions.tensorflow_.framework import tf


def encrypted(_ops: Any, key_0: Array, key_1: Array, counter_0: Array, counter_1: Array) -> tuple[Array, Array]:
    """See `threefry_2x32`; of int32 arrays (1,), (1,), (n,), (1,)."""
    counters = tensor_of(counter_0)
    words = _function()(tensor_of(key_0), tensor_of(key_1), counters, tensor_of(counter_1))
    if not tf.executing_eagerly():
        for word in words:
            word.set_shape(counters.shape)
    return TensorFlowArray(words[0]), TensorFlowArray(words[1])


@cache
def _function() -> Any:
    one, many = tf.TensorSpec((1,), tf.int32), tf.TensorSpec((None,), tf.int32)

    def threefry(*tensors: Any) -> list[Any]:
        return [word.tensor for word in threefry_2x32(ops, *map(TensorFlowArray, tensors))]

    with tf.init_scope():  # of no graph that is being traced: it outlives all of them
        return tf.function(threefry, autograph=False).get_concrete_function(one, one, many, one)

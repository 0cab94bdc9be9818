"""The vocabulary of rlweave.ops on TensorFlow."""

import sys

from rlweave.backends.tensorflow_.array import TensorFlowArray
from rlweave.backends.tensorflow_.framework import tf
from rlweave.backends.tensorflow_.ops.arrays import *
from rlweave.backends.tensorflow_.ops.control import *
from rlweave.backends.tensorflow_.ops.elementwise import *
from rlweave.backends.tensorflow_.ops.neural import *
from rlweave.backends.tensorflow_.ops.optimization import *
from rlweave.backends.tensorflow_.ops.reductions import *
from rlweave.ops.dispatch import register_backend

register_backend(
    "tensorflow", sys.modules[__name__], lambda kind: issubclass(kind, (TensorFlowArray, tf.Tensor, tf.Variable))
)

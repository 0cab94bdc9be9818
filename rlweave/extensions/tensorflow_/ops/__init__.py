"""The vocabulary of rlweave.ops on TensorFlow."""

import sys

from rlweave.extensions.tensorflow_.array import TensorFlowArray
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.extensions.tensorflow_.ops.arrays import *
from rlweave.extensions.tensorflow_.ops.control import *
from rlweave.extensions.tensorflow_.ops.elementwise import *
from rlweave.extensions.tensorflow_.ops.neural import *
from rlweave.extensions.tensorflow_.ops.optimization import *
from rlweave.extensions.tensorflow_.ops.reductions import *
from rlweave.ops.dispatch import register_backend

register_backend(
    "tensorflow", sys.modules[__name__], lambda kind: issubclass(kind, (TensorFlowArray, tf.Tensor, tf.Variable))
)

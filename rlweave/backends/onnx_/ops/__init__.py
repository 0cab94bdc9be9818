"""The vocabulary of rlweave.ops on ONNX Runtime."""

import sys

from rlweave.backends.onnx_.ops.arrays import *
from rlweave.backends.onnx_.ops.control import *
from rlweave.backends.onnx_.ops.elementwise import *
from rlweave.backends.onnx_.ops.neural import *
from rlweave.backends.onnx_.ops.optimization import *
from rlweave.backends.onnx_.ops.reductions import *
from rlweave.backends.onnx_.symbol import Symbol
from rlweave.ops.dispatch import register_backend

register_backend("onnx", sys.modules[__name__], lambda kind: issubclass(kind, Symbol))

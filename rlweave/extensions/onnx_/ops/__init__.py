"""The vocabulary of rlweave.ops on ONNX Runtime."""

import sys

from rlweave.extensions.onnx_.ops.arrays import *
from rlweave.extensions.onnx_.ops.control import *
from rlweave.extensions.onnx_.ops.elementwise import *
from rlweave.extensions.onnx_.ops.neural import *
from rlweave.extensions.onnx_.ops.optimization import *
from rlweave.extensions.onnx_.ops.reductions import *
from rlweave.extensions.onnx_.symbol import Symbol
from rlweave.ops.dispatch import register_backend

register_backend("onnx", sys.modules[__name__], lambda kind: issubclass(kind, Symbol))

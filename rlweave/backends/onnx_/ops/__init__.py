"""The vocabulary of rlweave.ops on ONNX Runtime."""

import sys

from rlweave.backends.onnx_.ops.control import *
from rlweave.backends.onnx_.ops.creation import *
from rlweave.backends.onnx_.ops.elementwise import *
from rlweave.backends.onnx_.ops.indexing import *
from rlweave.backends.onnx_.ops.neural import *
from rlweave.backends.onnx_.ops.optimization import *
from rlweave.backends.onnx_.ops.reductions import *
from rlweave.backends.onnx_.ops.shapes import *
from rlweave.backends.onnx_.symbol import Symbol
from rlweave.ops.dispatch import register_backend

register_backend("onnx", sys.modules[__name__], lambda kind: issubclass(kind, Symbol))

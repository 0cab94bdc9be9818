"""The vocabulary of rlweave.ops on NumPy."""

import sys

import numpy as np

from rlweave.backends.numpy_.ops.arrays import *
from rlweave.backends.numpy_.ops.control import *
from rlweave.backends.numpy_.ops.elementwise import *
from rlweave.backends.numpy_.ops.neural import *
from rlweave.backends.numpy_.ops.optimization import *
from rlweave.backends.numpy_.ops.reductions import *
from rlweave.ops.dispatch import register_backend

register_backend("numpy", sys.modules[__name__], lambda kind: issubclass(kind, np.ndarray | np.generic))

"""The vocabulary of rlweave.ops on torch."""

import sys

import torch

from rlweave.backends.torch_.ops.arrays import *
from rlweave.backends.torch_.ops.control import *
from rlweave.backends.torch_.ops.elementwise import *
from rlweave.backends.torch_.ops.neural import *
from rlweave.backends.torch_.ops.optimization import *
from rlweave.backends.torch_.ops.reductions import *
from rlweave.ops.dispatch import register_backend

register_backend("torch", sys.modules[__name__], lambda kind: issubclass(kind, torch.Tensor))

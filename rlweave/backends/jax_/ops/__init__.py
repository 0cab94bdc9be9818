"""The vocabulary of rlweave.ops on JAX."""

import sys

import jax

from rlweave.backends.jax_.ops.arrays import *
from rlweave.backends.jax_.ops.control import *
from rlweave.backends.jax_.ops.convolution import *
from rlweave.backends.jax_.ops.elementwise import *
from rlweave.backends.jax_.ops.neural import *
from rlweave.backends.jax_.ops.optimization import *
from rlweave.backends.jax_.ops.reductions import *
from rlweave.ops.dispatch import register_backend

# A value under jit is a Tracer, whose class is no subclass of jax.Array.
register_backend("jax", sys.modules[__name__], lambda kind: issubclass(kind, (jax.Array, jax.core.Tracer)))

"""The vocabulary of numeric operators: one signature, one docstring and one meaning for every backend.

Names and argument order follow the Python array API standard where it has the operator. Called directly, an operator
runs on the backend of its arrays (`ops.add(torch_tensor, 1)`), or on the default one
(`with ops.default_backend("jax")`). Inside graph functions `ops` is bound to one backend when the graph is lowered, so
write `from rlweave import ops` at module level and `ops.add(...)` in the body.

The list is closed and short: a new operator is one declaration in a file of this package, a row (or a function) in the
file of that name in `ops/` of each backend (`backends/`; TensorFlow and ONNX: `extensions/`), and a parity case.
"""

import types

from rlweave.ops import random
from rlweave.ops.arrays import *
from rlweave.ops.control import *
from rlweave.ops.dispatch import (
    Array,
    backend_module,
    default_backend,
    implementation,
    register_backend,
    register_loader,
    registered_backends,
)
from rlweave.ops.elementwise import *
from rlweave.ops.neural import *
from rlweave.ops.optimization import *
from rlweave.ops.random import RANDOM_NAMES
from rlweave.ops.reductions import *

OP_NAMES: tuple[str, ...] = tuple(
    sorted(
        name
        for name, value in list(globals().items())
        if isinstance(value, types.FunctionType) and value.__module__ != implementation.__module__
    )
)
"""Every operator, in alphabetic order (the random ones are `RANDOM_NAMES`, in `ops.random`)."""

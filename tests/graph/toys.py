"""Tiny components that the tests of the graph core share: variables, losses and steps whose numbers fit on paper."""

import numpy as np

from rlweave import ops
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
GRADIENT_BACKENDS = ("torch", "jax", "tensorflow")

SCALAR = FloatBox()
BATCH = FloatBox(add_batch_rank=True)


def rows(*shape):
    """Float features with a batch rank."""
    return FloatBox(shape=shape, add_batch_rank=True)


def sequences(*shape):
    """Float features with time and batch ranks."""
    return FloatBox(shape=shape, add_batch_rank=True, add_time_rank=True)


class Cell(Component):
    """One variable that can be read, set and moved."""

    def __init__(self, initial=0.0, shape=(), scope="cell", trainable=True):
        super().__init__(scope, trainable=trainable)
        self.initial, self.shape = initial, shape

    def create_variables(self):
        self.content = self.variable("content", self.shape, self.initial)

    @graph_fn
    def read(self):
        return self.content.value + 0.0

    @graph_fn
    def raw(self):
        return self.content.value

    @graph_fn
    def times(self, x):
        return self.content.value * x

    @graph_fn
    def set(self, x):
        self.content.assign(x)

    @graph_fn
    def add(self, x):
        self.content.assign(self.content.value + x)

    @graph_fn(differentiable=False)
    def add_silently(self, x):
        self.content.assign(self.content.value + x)


class Descent(Component):
    """Plain gradient descent."""

    def __init__(self, rate=0.1, scope="descent"):
        super().__init__(scope)
        self.rate = rate

    @graph_fn(differentiable=False)
    def apply(self, gradients, variables):
        for path, variable in variables.items():
            variable.assign(variable.value - self.rate * gradients[path])


class Linear(Component):
    """`inputs @ kernel + bias`."""

    def __init__(self, units, scope="linear"):
        super().__init__(scope)
        self.units = units

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (inputs.shape[-1], self.units), "lecun_normal")
        self.bias = self.variable("bias", (self.units,), 0.1)

    @graph_fn
    def call(self, inputs):
        return ops.matmul(inputs, self.kernel.value) + self.bias.value


def weight(executor, suffix):
    """The one variable whose path ends so."""
    found = [value for path, value in executor.get_weights().items() if path.endswith(suffix)]
    assert len(found) == 1, (suffix, list(executor.get_weights()))
    return found[0]


def built(component, spaces=None, backend="numpy", **options):
    """`build`, with positional spaces and backend as the tests like it."""
    return build(component, spaces or {}, backend=backend, **options)


def close(result, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=rtol, atol=atol)


__all__ = [
    "BACKENDS",
    "BATCH",
    "GRADIENT_BACKENDS",
    "SCALAR",
    "Cell",
    "Descent",
    "Linear",
    "api",
    "built",
    "close",
    "rows",
    "sequences",
    "weight",
]

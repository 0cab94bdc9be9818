"""Roots that differentiate what a component computes, by variables that stand for its inputs."""

import numpy as np

from rlweave import ops
from rlweave.graph import Component, api, build, gradients, graph_fn

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
DIFFERENTIABLE = ("torch", "jax", "tensorflow")


class InputProbe(Component):
    """The gradient of the summed results of one method by its (flat, float) inputs.

    Args:
        component: Any component without variables.
        call: From (component, arrays by name) to one value.
        arrays: Initial values by name.
    """

    def __init__(self, component, call, arrays):
        super().__init__("probe")
        self.component, self.call, self.arrays = component, call, arrays

    def create_variables(self):
        self.inputs = {name: self.variable(name, np.shape(x), np.asarray(x)) for name, x in self.arrays.items()}

    @graph_fn(returns=1)
    def _read(self):
        return {name: cell.value for name, cell in self.inputs.items()}

    @graph_fn
    def _total(self, result):
        return ops.sum(result)

    @api
    def run(self):
        loss = self._total(self.call(self.component, self._read()))
        return loss, gradients(loss, self.variables(), allow_unused=True)  # some results depend on no input


def input_gradients(component, call, arrays, backend):
    """Total, and gradients by input name."""
    arrays = {name: np.asarray(x, np.float32) for name, x in arrays.items()}
    total, found = build(InputProbe(component, call, arrays), backend=backend).run()
    return float(total), {path.rpartition("/")[2]: gradient for path, gradient in found.items()}


class WeightProbe(Component):
    """The gradient of a weighted sum of what a component makes of its input, by the component's variables."""

    def __init__(self, component, call):
        super().__init__("probe")
        self.component, self.call = component, call

    @graph_fn
    def _total(self, results):
        total = 0.0
        for result in results:
            scale = ops.reshape(ops.arange(1, 1 + int(np.prod(result.shape)), dtype="float32"), result.shape)
            total = total + ops.sum(ops.sin(scale) * result)
        return total

    @api
    def run(self, inputs):
        loss = self._total(self.call(self.component, inputs))
        return gradients(loss, self.component.variables())


def weight_gradients(component, call, space, inputs, backend):
    """Gradients by variable path below the component."""
    found = build(WeightProbe(component, call), {"inputs": space}, backend=backend).run(inputs)
    prefix = component.path + "/"
    return {path.removeprefix(prefix): gradient for path, gradient in found.items()}

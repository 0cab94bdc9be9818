"""The checks that run over all components find what they are there to find."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import Descriptor, eager_parity, gradient_parity, state_round_trip, value_parity
from rlweave.testing.gradient_parity import differentiable_methods

ROWS = FloatBox(shape=(3,), add_batch_rank=True)


class Layer(Component):
    """Right in every way."""

    def create_variables(self, inputs):
        self.weight = self.variable("weight", (3, 2), "lecun_normal")
        self.count = self.variable("count", (), 0.0, trainable=False)

    @graph_fn
    def call(self, inputs):
        self.count.assign(self.count.value + 1.0)
        return self.body(ops.matmul(inputs, self.weight.value))

    def body(self, x):
        return ops.tanh(x)

    @graph_fn
    def noisy(self, inputs):
        return inputs * ops.random.normal(inputs.shape) + self.count.value


def described(cls, **options):
    return Descriptor(cls.__name__, cls, cls, {"inputs": ROWS}, **options)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_a_right_component_passes(backend):
    value_parity(described(Layer), backend)
    eager_parity(described(Layer), backend)
    state_round_trip(described(Layer), backend)
    if backend != "numpy":
        gradient_parity(described(Layer), backend)


class DiffersOnTorch(Layer):
    def body(self, x):
        return ops.tanh(x) * (1.001 if type(x).__module__ == "torch" else 1.0)


def test_other_values_on_one_backend_are_found():
    value_parity(described(DiffersOnTorch), "numpy")
    with pytest.raises(AssertionError, match=r"DiffersOnTorch, torch against numpy, batch size 1, call"):
        value_parity(described(DiffersOnTorch), "torch")


class DiffersForOneRow(Layer):
    def body(self, x):
        return ops.tanh(x) if x.shape[0] == 7 or type(x).__module__ != "torch" else x


def test_several_batch_sizes_are_tried():
    with pytest.raises(AssertionError, match="batch size 1"):
        value_parity(described(DiffersForOneRow), "torch")
    value_parity(described(DiffersForOneRow, batch_sizes=(7,)), "torch")


class OtherDtype(Layer):
    def body(self, x):
        return ops.astype(ops.round(x), "int32") if type(x).__module__ == "torch" else ops.round(x)


def test_other_dtypes_are_found():
    with pytest.raises(AssertionError, match="int32 / float32"):
        value_parity(described(OtherDtype), "torch")


class MovesOnTorchOnly(Layer):
    @graph_fn
    def call(self, inputs):
        step = 2.0 if type(inputs).__module__ == "torch" else 1.0
        self.count.assign(self.count.value + step)
        return inputs


def test_other_state_is_found():
    with pytest.raises(AssertionError, match="variable moves-on-torch-only/count"):
        value_parity(described(MovesOnTorchOnly, calls=("call",)), "torch")


class HiddenState(Layer):
    def __init__(self):
        super().__init__("hidden-state")
        self.calls = {"number": 0}

    def body(self, x):
        self.calls["number"] += 1
        return x + self.calls["number"]


def test_state_outside_of_variables_is_found():
    with pytest.raises(AssertionError, match="after load_state_dict, call"):
        state_round_trip(described(HiddenState, calls=("call",)), "numpy")


class Cut(Layer):
    def body(self, x):
        return ops.stop_gradient(x) + ops.tanh(x)


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_a_missing_gradient_is_found(backend):
    with pytest.raises(AssertionError, match=rf"Cut.call on {backend}: variable .*/weight\[.*by differences"):
        gradient_parity(described(Cut), backend)


class TwoInputs(Component):
    def __init__(self, stop=True):
        super().__init__("two-inputs")
        self.stop = stop

    @graph_fn
    def call(self, x, target):
        return ops.square(x - (ops.stop_gradient(target) if self.stop else target))


def two_inputs(**options):
    stop = options.pop("stop", True)
    return Descriptor("two-inputs", TwoInputs, lambda: TwoInputs(stop), {"x": ROWS, "target": ROWS}, **options)


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_targets_are_declared_and_get_no_gradient(backend):
    gradient_parity(two_inputs(constants={"call": ("target",)}), backend)
    gradient_parity(two_inputs(stop=False), backend)
    with pytest.raises(AssertionError, match="input target"):
        gradient_parity(two_inputs(), backend)
    with pytest.raises(AssertionError, match="a gradient reaches target"):
        gradient_parity(two_inputs(stop=False, constants={"call": ("target",)}), backend)


class LossAndTargets(Component):
    @graph_fn
    def call(self, x):
        return ops.square(x), ops.stop_gradient(x)


def test_a_part_of_the_result_may_be_constant():
    whole = Descriptor("pair", LossAndTargets, LossAndTargets, {"x": ROWS})
    with pytest.raises(AssertionError, match="by differences"):
        gradient_parity(whole, "torch")
    part = Descriptor("pair", LossAndTargets, LossAndTargets, {"x": ROWS}, differentiated={"call": lambda r: r[0]})
    gradient_parity(part, "torch")


def test_methods_with_a_float_result_and_something_to_differentiate_by_are_found():
    class Mixed(Component):
        def create_variables(self, inputs):
            self.table = self.variable("table", (4,), "standard_normal")

        @graph_fn
        def call(self, inputs):
            return inputs + self.table.value[0]

        @graph_fn
        def look_up(self, indices):
            return ops.take(self.table.value, indices, axis=0)

        @graph_fn
        def best(self, inputs):
            return ops.argmax(inputs, axis=-1)

        @graph_fn
        def constant(self):
            return ops.ones((2,))

    spaces = {"inputs": ROWS, "indices": IntBox(4, add_batch_rank=True)}
    descriptor = Descriptor("mixed", Mixed, lambda: Mixed("mixed"), spaces)
    assert differentiable_methods(descriptor) == ("call", "look_up")
    gradient_parity(descriptor, "torch")


def test_random_numbers_are_the_same_everywhere():
    class Noise(Component):
        @graph_fn
        def call(self, inputs):
            return inputs + ops.random.uniform(inputs.shape)

    descriptor = Descriptor("noise", Noise, lambda: Noise("noise"), {"inputs": ROWS})
    for backend in ("torch", "jax"):
        value_parity(descriptor, backend)
        gradient_parity(descriptor, backend)
    assert np.isfinite(descriptor.sample(Noise("noise"), "call", 4)["inputs"]).all()

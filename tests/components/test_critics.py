"""Stacked critics against the layers of each alone, with gradients, on every backend."""

import numpy as np
import pytest

from rlweave.components import Critics, StackedDense
from rlweave.errors import SpecError
from rlweave.graph import from_spec, to_spec
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

RELU = [{"type": "dense", "units": 8, "activation": "relu"}]
OBSERVATIONS = Dict(kind=IntBox(3), place=FloatBox(shape=(2, 2))).with_batch_rank()
ACTIONS = Tuple(FloatBox(shape=(2,)), FloatBox()).with_batch_rank()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 2])
def test_each_critic_is_a_network_of_its_own(backend, count):
    test = ComponentTest(Critics(RELU * 2, count), {"observations": OBSERVATIONS, "actions": ACTIONS}, backend)
    weights, observations, actions = test.variables(), test.sample("observations", 5), test.sample("actions", 5)
    features = [np.eye(3)[observations["kind"]], observations["place"].reshape(5, 4), actions[0], actions[1][:, None]]
    columns = []
    for critic in range(count):
        x = np.concatenate(features, axis=1)
        for layer in ("layer-0", "layer-1"):
            x = np.maximum(x @ weights[f"{layer}/kernel"][critic] + weights[f"{layer}/bias"][critic], 0)
        columns.append(x @ weights["head/kernel"][critic] + weights["head/bias"][critic])
    expected = np.concatenate(columns, axis=1)
    assert expected.shape == (5, count)
    test.test("call", observations, actions, expected=expected, rtol=1e-4, atol=1e-5)


def test_critics_begin_apart_and_each_as_a_layer_alone_would():
    inputs = FloatBox(shape=(400,), add_batch_rank=True)
    kernel = ComponentTest(StackedDense(2, 300, "relu"), {"inputs": inputs}, "numpy").variables()["kernel"]
    assert not np.array_equal(kernel[0], kernel[1])
    # the fan-in is that of one layer: variance 2 / 400
    np.testing.assert_allclose(kernel.var(axis=(1, 2)), 2 / 400, rtol=0.05)


def test_a_wrong_initializer_is_named_where_the_layer_is_made():
    with pytest.raises(SpecError, match="orthogonal"):
        StackedDense(2, 3, kernel_initializer="ortogonal")


@pytest.mark.parametrize(("initializer", "expected"), [(0.5, 0.5), ({"type": "orthogonal", "gain": 2.0}, None)])
def test_initial_kernels_of_stacked_layers(initializer, expected):
    inputs = FloatBox(shape=(3,), add_batch_rank=True)
    test = ComponentTest(StackedDense(2, 3, kernel_initializer=initializer), {"inputs": inputs})
    for kernel in test.variables()["kernel"]:
        if expected is None:
            np.testing.assert_allclose(kernel.T @ kernel, 4.0 * np.eye(3), atol=1e-5)
        else:
            np.testing.assert_array_equal(kernel, np.full((3, 3), expected, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_stacked_layers_on_inputs_of_their_own(backend):
    one, own = (FloatBox(shape=shape, add_batch_rank=True) for shape in ((3,), (2, 3)))
    shared = ComponentTest(StackedDense(2, 4, "tanh"), {"inputs": one}, backend)
    apart = ComponentTest(StackedDense(2, 4, "tanh"), {"inputs": own}, backend)
    x = shared.sample("inputs", 5)
    kernels = shared.variables()["kernel"]
    expected = np.stack([np.tanh(x @ kernel) for kernel in kernels], axis=1)
    shared.test("call", x, expected=expected, rtol=1e-4, atol=1e-5)
    both = np.stack([x, 2 * x], axis=1)
    expected = np.stack([np.tanh(x @ kernels[0]), np.tanh(2 * x @ kernels[1])], axis=1)
    apart.test("call", both, expected=expected, rtol=1e-4, atol=1e-5)


def test_layers_that_cannot_be_stacked_are_refused():
    with pytest.raises(SpecError, match="critics have dense layers") as error:
        Critics([{"type": "lstm", "units": 8}])
    assert "lstm" in str(error.value)


def test_specs_round_trip():
    spec = to_spec(Critics(RELU, 2))
    assert to_spec(from_spec(spec)) == spec

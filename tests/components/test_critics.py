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


def test_layers_that_cannot_be_stacked_are_refused():
    with pytest.raises(SpecError, match="critics have dense layers") as error:
        Critics([{"type": "lstm", "units": 8}])
    assert "lstm" in str(error.value)


def test_specs_round_trip():
    spec = to_spec(Critics(RELU, 2))
    assert to_spec(from_spec(spec)) == spec

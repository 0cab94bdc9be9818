import numpy as np
import pytest

from rlweave.components import Dense, Network, mlp, nature_cnn
from rlweave.components.initializers import orthogonal_spec
from rlweave.components.network import is_recurrent
from rlweave.errors import SpecError
from rlweave.graph import Component, api, build, shared, to_spec
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

VECTORS = FloatBox(shape=(4,), add_batch_rank=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_are_applied_in_order(backend):
    network = Network([{"type": "dense", "units": 8, "activation": "tanh"}, Dense(2), "flatten"])
    test = ComponentTest(network, {"inputs": VECTORS}, backend)
    v = test.variables()
    assert list(v) == ["dense-0/kernel", "dense-0/bias", "dense-1/kernel", "dense-1/bias"]
    x = test.sample("inputs", 5)
    test.test("call", x, expected=(np.tanh(x @ v["dense-0/kernel"]) @ v["dense-1/kernel"], ()), rtol=1e-4)


@pytest.mark.parametrize("layers", [None, []])
def test_an_empty_network_adds_no_node(layers):
    test = ComponentTest(Network(layers), {"inputs": VECTORS})
    x = test.sample("inputs", 3)
    test.test("call", x, expected=(x, ()))
    assert all(not graph.nodes for graph in test.executor.graphs.values())


def test_mlp_and_single_layers():
    assert [layer.units for layer in Network(mlp([8, 4])).layers] == [8, 4]
    assert Network({"type": "dense", "units": 3}).layers[0].units == 3
    assert mlp([8], "relu", 0.5) == [{"type": "dense", "units": 8, "activation": "relu", "kernel_initializer": 0.5}]


def test_the_nature_network_has_the_published_shapes():
    space = FloatBox(0, 1, shape=(84, 84, 4), add_batch_rank=True, layout="channels_last")
    variables = ComponentTest(Network(nature_cnn()), {"inputs": space}).variables()
    assert [value.shape for path, value in variables.items() if path.endswith("kernel")] == [
        (8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7 * 7 * 64, 512),
    ]  # fmt: skip


def test_an_initializer_reaches_layers_that_choose_none():
    chosen = {"type": "dense", "units": 4, "kernel_initializer": 1.0}
    network = Network([Dense(4), {"type": "dense", "units": 4}, chosen], kernel_initializer=orthogonal_spec(3.0))
    v = ComponentTest(network, {"inputs": VECTORS}).variables()
    for i in (0, 1):
        kernel = v[f"dense-{i}/kernel"]
        np.testing.assert_allclose(kernel.T @ kernel, 9 * np.eye(4), atol=1e-5)
    assert np.all(v["dense-2/kernel"] == 1)
    assert chosen == {"type": "dense", "units": 4, "kernel_initializer": 1.0}


def test_a_shared_layer_has_one_set_of_variables():
    class Twice(Component):
        def __init__(self):
            super().__init__("root")
            self.layer = Dense(4, scope="common")
            self.first = Network([shared(self.layer), Dense(2)], scope="a")
            self.second = Network([shared(self.layer)], scope="b")

        @api
        def call(self, inputs):
            return self.first.call(inputs)[0], self.second.call(inputs)[0]

    executor = build(Twice(), {"inputs": VECTORS})
    weights = executor.get_weights()
    assert list(weights) == [f"root/{layer}/{name}" for layer in ("common", "a/dense") for name in ("kernel", "bias")]
    first, second = executor.call(np.eye(4, dtype=np.float32))
    np.testing.assert_allclose(second, weights["root/common/kernel"], rtol=1e-5)
    np.testing.assert_allclose(first, second @ weights["root/a/dense/kernel"], rtol=1e-5)


def test_specs_round_trip():
    spec = {"type": "network", "layers": [{"type": "dense", "units": 8, "activation": "relu"}, {"type": "flatten"}]}
    assert to_spec(Component.from_spec(spec)) == spec


class NoLayer(Component):
    pass


@pytest.mark.parametrize(
    ("layers", "hint"),
    [
        ([{"type": "dens", "units": 3}], "dense"),
        ([NoLayer()], "is no layer"),
        (3, "list of layers"),
        ([{"type": "dense", "units": 0}], "at least 1 unit"),
    ],
)
def test_what_is_no_layer_is_refused(layers, hint):
    with pytest.raises(SpecError, match=hint):
        Network(layers)


def test_the_nature_network_has_the_sizes_of_the_paper():
    images = FloatBox(0, 1, shape=(84, 84, 4), layout="channels_last", add_batch_rank=True)
    test = ComponentTest(Network(nature_cnn()), {"inputs": images})
    kernels = [value.shape for path, value in test.variables().items() if path.endswith("kernel")]
    assert kernels == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7 * 7 * 64, 512)]


def test_one_recurrent_layer_makes_a_network_recurrent():
    dense, gru = {"type": "dense", "units": 3}, {"type": "gru", "units": 3}
    assert is_recurrent([dense, gru])
    assert is_recurrent([gru])
    assert not is_recurrent([dense, dense])
    assert not is_recurrent(None)

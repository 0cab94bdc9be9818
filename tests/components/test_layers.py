import numpy as np
import pytest

from rlweave.backends import is_installed
from rlweave.components import Activation, Concat, Dense, Flatten, LayerNorm
from rlweave.components.layers import ACTIVATIONS
from rlweave.errors import BuildError, ConfigError, SpecError
from rlweave.graph import Component, to_spec
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, weight_gradients

VECTORS = FloatBox(shape=(3,), add_batch_rank=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_dense_oracle(backend):
    layer = Dense(
        4, "leaky_relu", kernel_initializer=2.0, bias_initializer=0.5, activation_parameters={"negative_slope": 0.2}
    )
    inputs = np.array([[0.5, 2, 1.5], [-1, -2, -1.5]], np.float32)
    ComponentTest(layer, {"inputs": VECTORS}, backend).test(
        "call", inputs, expected=np.array([[8.5] * 4, [-1.7] * 4], np.float32)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", [None, "relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_dense_is_one_node_and_equals_numpy(backend, activation, use_bias):
    test = ComponentTest(
        Dense(5, activation, bias_initializer=0.3, use_bias=use_bias), {"inputs": VECTORS}, backend, seed=3
    )
    x = test.sample("inputs", 6)
    variables = test.variables()
    assert sorted(variables) == (["bias", "kernel"] if use_bias else ["kernel"])
    z = x @ variables["kernel"] + variables.get("bias", 0.0)
    expected = {None: z, "relu": np.maximum(z, 0), "tanh": np.tanh(z), "sigmoid": 1 / (1 + np.exp(-z))}[activation]
    test.test("call", x, expected=expected)
    assert [len(graph.nodes) for graph in test.executor.graphs.values()] == [1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_dense_works_on_any_leading_ranks(backend):
    space = FloatBox(shape=(2, 3), add_batch_rank=True, add_time_rank=True)
    test = ComponentTest(Dense(5, "relu"), {"inputs": space}, backend)
    x = test.sample("inputs", (4, 6))
    kernel = test.variables()["kernel"]
    test.test("call", x, expected=np.maximum(np.einsum("tbif,fu->tbiu", x, kernel), 0))


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_dense_gradients(backend):
    x = np.array([[1.0, -2.0, 0.5]], np.float32)
    found = weight_gradients(
        Dense(2, kernel_initializer=0.1), lambda layer, inputs: (layer.call(inputs),), VECTORS, x, backend
    )
    weights = np.sin([1.0, 2.0])
    np.testing.assert_allclose(found["bias"], weights, rtol=1e-5)
    np.testing.assert_allclose(found["kernel"], np.outer(x[0], weights), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dense_layer_takes_no_features(backend):
    space = FloatBox(shape=(0,), add_batch_rank=True)
    test = ComponentTest(Dense(2, bias_initializer=1.5), {"inputs": space}, backend)
    test.test("call", np.zeros((3, 0), np.float32), expected=np.full((3, 2), 1.5, np.float32))


def test_the_same_seed_gives_the_same_weights_on_every_backend():
    tests = [
        ComponentTest(Dense(4, "relu"), {"inputs": VECTORS}, backend, seed=7)
        for backend in filter(is_installed, BACKENDS)
    ]
    kernels = [test.variables()["kernel"] for test in tests]
    for other in kernels[1:]:
        np.testing.assert_array_equal(kernels[0], other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_equals_its_formula(backend, name):
    from math import erf

    x = np.array([[-3.0, -0.5, 0.0, 0.5, 3.0]], np.float32)
    e = np.exp(x.astype(np.float64))
    expected = {
        "elu": np.where(x > 0, x, e - 1),
        "gelu": 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2))),
        "leaky_relu": np.where(x > 0, x, 0.01 * x),
        "log_softmax": np.log(e / e.sum()),
        "relu": np.maximum(x, 0),
        "sigmoid": e / (1 + e),
        "silu": x * e / (1 + e),
        "softmax": e / e.sum(),
        "softplus": np.log1p(e),
        "tanh": np.tanh(x),
    }[name]
    ComponentTest(Activation(name), {"inputs": FloatBox(shape=(5,), add_batch_rank=True)}, backend).test(
        "call", x, expected=expected.astype(np.float32)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_flatten_keeps_leading_ranks(backend):
    space = FloatBox(shape=(2, 3), add_batch_rank=True, add_time_rank=True)
    test = ComponentTest(Flatten(), {"inputs": space}, backend)
    x = test.sample("inputs", (4, 5))
    test.test("call", x, expected=x.reshape(4, 5, 6))


@pytest.mark.parametrize("backend", BACKENDS)
def test_concat_joins_leaves_in_the_order_of_their_paths(backend):
    space = Dict(b=FloatBox(shape=(2,)), a=Tuple(FloatBox(shape=(1,)), FloatBox(shape=(0,))), add_batch_rank=True)
    test = ComponentTest(Concat(), {"inputs": space}, backend)
    x = {"b": np.full((2, 2), 2, np.float32), "a": (np.ones((2, 1), np.float32), np.zeros((2, 0), np.float32))}
    test.test("call", x, expected=np.array([[1, 2, 2]] * 2, np.float32))


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Dense(4, "rleu"), "relu"),
        (lambda: Dense(4, "leaky_relu", activation_parameters={"slope": 0.1}), "negative_slope"),
        (lambda: Dense(4, "relu", activation_parameters={"slope": 0.1}), "takes none"),
        (lambda: Dense(4, kernel_initializer="he_norml"), "he_normal"),
        (lambda: Dense(4, bias_initializer="he_norml"), "he_normal"),
        (lambda: Dense(2.5), "units=2.5"),
        (lambda: Activation("tan"), "tanh"),
        (lambda: Component.from_spec({"type": "dense", "unit": 3}), "units"),
    ],
)
def test_wrong_options_name_the_nearest_right_one(make, hint):
    with pytest.raises(SpecError, match=hint):
        make()


@pytest.mark.parametrize(
    ("space", "hint"),
    [
        (FloatBox(add_batch_rank=True), "feature axis"),
        (IntBox(3, shape=(2,), add_batch_rank=True), "floats, not int32"),
        (Dict(a=FloatBox(shape=(2,)), add_batch_rank=True), "container"),
    ],
)
def test_a_dense_layer_refuses_what_it_cannot_take(space, hint):
    with pytest.raises(BuildError, match=hint) as caught:
        ComponentTest(Dense(2), {"inputs": space})
    assert "ObservationEncoder" in str(caught.value)


def test_a_spec_makes_an_equal_layer_and_is_not_changed():
    spec = {
        "type": "dense",
        "units": 3,
        "activation": "leaky_relu",
        "kernel_initializer": {"type": "orthogonal", "gain": 2.0},
        "activation_parameters": {"negative_slope": 0.2},
    }
    before = {**spec}
    layer = Component.from_spec(spec)
    assert spec == before
    assert to_spec(layer) == spec
    test = ComponentTest(Component.from_spec(to_spec(layer)), {"inputs": VECTORS})
    kernel = test.variables()["kernel"]
    np.testing.assert_allclose(kernel.T @ kernel, 4 * np.eye(3), atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_layer_norm_oracle(backend):
    space = FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)
    test = ComponentTest(LayerNorm(epsilon=0.5), {"inputs": space}, backend)
    gain, bias = np.array([1.0, 2.0, -1.0], np.float32), np.array([0.0, 0.5, 1.0], np.float32)
    test.executor.set_weights({"layer-norm/gain": gain, "layer-norm/bias": bias})
    x = test.sample("inputs", (4, 6))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5) * gain + bias
    test.test("call", x, expected=expected)


def test_layer_norm_refuses_what_has_no_features():
    with pytest.raises(BuildError, match="needs a feature axis"):
        ComponentTest(LayerNorm(), {"inputs": FloatBox(add_batch_rank=True)}, "numpy")
    with pytest.raises(ConfigError, match="epsilon"):
        LayerNorm(epsilon=0.0)

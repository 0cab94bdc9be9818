import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlweave.components import FlaxModule, Policy
from rlweave.errors import BackendError, BuildError
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import weight_gradients

VECTORS = FloatBox(shape=(3,), add_batch_rank=True)


class Layers(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.rest = nnx.List([nnx.Linear(4, 2, rngs=rngs)])

    def __call__(self, x):
        return self.rest[0](self.dropout(nnx.relu(self.norm(self.first(x)))))


def module():
    layers = Layers()
    layers(jnp.asarray(VECTORS.sample(16, rng=1)))  # moves the statistics of the normalization
    return layers


def test_parameters_become_variables_with_their_values():
    native = module()
    variables = ComponentTest(FlaxModule(native, training=False), {"inputs": VECTORS}, "jax").variables()
    assert sorted(variables) == sorted(
        [
            "first.bias",
            "first.kernel",
            "norm.bias",
            "norm.scale",
            "norm.mean",
            "norm.var",
            "rest.0.bias",
            "rest.0.kernel",
        ]
    )
    np.testing.assert_array_equal(variables["first.kernel"], np.asarray(native.first.kernel[...]))
    assert np.abs(variables["norm.mean"]).max() > 0


def test_it_computes_what_the_module_does_in_evaluation_mode():
    native, x = module(), VECTORS.sample(5, rng=0)
    test = ComponentTest(FlaxModule(native, training=False), {"inputs": VECTORS}, "jax")
    assert not native.norm.use_running_average  # the module itself was not touched
    native.eval()
    expected = np.asarray(native(jnp.asarray(x)))
    test.test("call", x, expected=expected)
    test.executor.set_weights({"flax-module/rest.0.bias": np.array([5, 6], np.float32)})
    test.test("call", x, expected=expected + np.array([5, 6], np.float32), rtol=1e-4)


def test_gradients_flow():
    x = VECTORS.sample(5, rng=0)
    found = weight_gradients(FlaxModule(module(), training=False), lambda c, y: (c.call(y),), VECTORS, x, "jax")
    native = module()
    native.eval()
    graph, parameters, rest = nnx.split(native, nnx.Param, ...)

    def loss(parameters):
        return jnp.sum(
            jnp.sin(jnp.arange(1.0, 11.0)).reshape(5, 2) * nnx.merge(graph, parameters, rest)(jnp.asarray(x))
        )

    expected = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(jax.grad(loss)(parameters))}
    assert sorted(found) == sorted(expected)
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, np.asarray(expected[name][...]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_another_backend_is_refused(backend):
    with pytest.raises(BackendError, match="jax backend only"):
        ComponentTest(FlaxModule(Layers(), training=False), {"inputs": VECTORS}, backend)


def test_dropout_has_to_say_whether_it_is_in_training():
    linear, dropout = nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    with pytest.raises(BuildError, match="does not say how layers behave"):
        FlaxModule(nnx.Sequential(linear, dropout))
    with pytest.raises(BuildError, match="dropout draws random numbers"):
        FlaxModule(nnx.Sequential(linear, dropout), training=True)
    FlaxModule(nnx.Sequential(linear, nnx.Dropout(0.0, rngs=nnx.Rngs(0))))  # it drops nothing


def test_something_else_is_refused():
    with pytest.raises(BuildError, match=r"flax\.nnx\.Module"):
        FlaxModule(lambda x: x)


def test_as_the_network_of_a_policy():
    assert not FlaxModule(Layers(), training=False).encodes_observations  # it is behind an encoder
    test = ComponentTest(Policy(FlaxModule(Layers(), training=False), IntBox(3)), {"observations": VECTORS}, "jax")
    assert test.test("mode", VECTORS.sample(2, rng=0)).shape == (2,)

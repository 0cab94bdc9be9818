"""What agents do to native modules: time and batch at once, images in the layout of the module, batch normalization."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.components import SGD, FlaxModule, KerasModule, TorchModule
from rlweave.errors import BuildError
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

IMAGES = FloatBox(shape=(6, 5, 3), add_batch_rank=True)
SEQUENCES = FloatBox(shape=(6, 5, 3), add_batch_rank=True, add_time_rank=True)


def _convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))


@pytest.mark.parametrize("leading", [(), (2,), (3, 2)])
def test_images_of_any_ranks_reach_a_module_with_one_batch_axis_and_channels_first(leading):
    native = _convolution()
    space = {0: IMAGES.strip_ranks(), 1: IMAGES, 2: SEQUENCES}[len(leading)]
    component = TorchModule(native, image_layout="channels_first", training=False)
    x = np.random.default_rng(0).normal(size=(*leading, 6, 5, 3)).astype(np.float32)
    expected = native.eval()(torch.from_numpy(x.reshape(-1, 6, 5, 3)).permute(0, 3, 1, 2)).detach().numpy()
    ComponentTest(component, {"inputs": space}, "torch").test("call", x, expected=expected.reshape(*leading, 2))


def test_batch_normalization_in_training_is_that_of_torch_and_moves_its_statistics():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.net = TorchModule(_convolution(), image_layout="channels_first", training=True, scope="net")
            self.optimizer = SGD(0.1)

        @api
        def call(self, inputs):
            return self.net.call(inputs)

        @api
        def update(self, inputs):
            loss = self._mean(self.net.call(inputs))
            self.optimizer.step(loss, self.net.variables())
            return loss

        @graph_fn
        def _mean(self, x):
            return ops.mean(x)

    executor = build(Root(), {"inputs": IMAGES}, backend="torch")
    native = _convolution()
    optimizer = torch.optim.SGD(native.parameters(), 0.1)
    x = IMAGES.sample(4, rng=0)
    for _ in range(2):
        loss = native(torch.from_numpy(x).permute(0, 3, 1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(executor.update(x), loss.detach().numpy(), rtol=1e-4, atol=1e-6)
    for name, value in native.state_dict().items():
        found = executor.get_weights()[f"root/net/{name}"]
        np.testing.assert_allclose(found, value.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_layers_that_know_two_ways_have_to_be_told_which():
    with pytest.raises(BuildError, match="does not say how layers behave") as error:
        TorchModule(_convolution())
    assert "received: 1 (BatchNorm2d)" in str(error.value)
    assert "training=False" in str(error.value)
    with pytest.raises(BuildError, match="dropout draws random numbers"):
        TorchModule(nn.Sequential(nn.Dropout(0.5)), training=True)
    with pytest.raises(BuildError, match="unknown layout of images"):
        TorchModule(nn.Linear(3, 2), image_layout="nchw")
    TorchModule(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.0)))


def test_rows_meet_in_training_only():
    assert TorchModule(_convolution(), training=True).mixes_batch
    assert not TorchModule(_convolution(), training=False).mixes_batch


def test_flax_modules_too():
    nnx = pytest.importorskip("flax.nnx")
    native = nnx.Sequential(nnx.Conv(3, 2, (3, 3), rngs=nnx.Rngs(0)), nnx.BatchNorm(2, rngs=nnx.Rngs(0)))
    with pytest.raises(BuildError, match="does not say how layers behave"):
        FlaxModule(native)
    x = np.random.default_rng(0).normal(size=(3, 2, 6, 5, 3)).astype(np.float32)
    test = ComponentTest(FlaxModule(native, training=True), {"inputs": SEQUENCES}, "jax")
    native.train()
    expected = np.asarray(native(x.reshape(-1, 6, 5, 3)))
    test.test("call", x, expected=expected.reshape(3, 2, *expected.shape[1:]), rtol=1e-4, atol=1e-5)
    means = [value for name, value in test.variables().items() if name.endswith("mean")]
    np.testing.assert_allclose(means[0], native.layers[1].mean.get_value(), rtol=1e-4, atol=1e-6)
    assert np.abs(means[0]).max() > 0


def test_keras_models_too():
    keras = pytest.importorskip("keras")
    backend = keras.backend.backend()
    layers = [keras.layers.Conv2D(2, 3), keras.layers.BatchNormalization(), keras.layers.Flatten()]
    native = keras.Sequential([keras.Input(shape=(6, 5, 3)), *layers, keras.layers.Dense(2)])
    with pytest.raises(BuildError, match="does not say how layers behave"):
        KerasModule(native)
    with pytest.raises(BuildError, match="has no weights yet"):
        KerasModule(keras.Sequential([keras.layers.Dense(2)]))
    assert not KerasModule(native, training=False).encodes_observations
    x = np.random.default_rng(0).normal(size=(3, 2, 6, 5, 3)).astype(np.float32)
    for training in (False, True):
        test = ComponentTest(KerasModule(native, training=training), {"inputs": SEQUENCES}, backend)
        expected = keras.ops.convert_to_numpy(native(x.reshape(-1, 6, 5, 3), training=training))
        test.test("call", x, expected=expected.reshape(3, 2, 2), rtol=1e-4, atol=1e-4)
    found = test.variables()
    assert sorted(found) == sorted(
        ["0/kernel", "0/bias", "1/gamma", "1/beta", "1/moving_mean", "1/moving_variance", "2/kernel", "2/bias"]
    )
    normalization = native.layers[1]
    for name in ("gamma", "moving_mean", "moving_variance"):
        expected = keras.ops.convert_to_numpy(keras.ops.copy(getattr(normalization, name).value))
        np.testing.assert_allclose(found[f"1/{name}"], expected, rtol=1e-4, atol=1e-5)

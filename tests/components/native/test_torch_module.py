import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from rlweave.components import Policy, TorchModule
from rlweave.errors import BackendError, BuildError
from rlweave.graph import Component, api, build
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import weight_gradients

VECTORS = FloatBox(shape=(3,), add_batch_rank=True)


def module():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    layers(torch.randn(16, 3))  # moves the statistics of the normalization
    return layers


def test_parameters_become_variables_with_their_values():
    native = module()
    variables = ComponentTest(TorchModule(native, training=False), {"inputs": VECTORS}, "torch").variables()
    expected = native.state_dict()
    assert sorted(variables) == sorted(expected)
    for name, value in variables.items():
        np.testing.assert_array_equal(value, expected[name].numpy())


def test_statistics_are_not_trained():
    cells = ComponentTest(TorchModule(module(), training=False), {"inputs": VECTORS}, "torch").executor.store.cells
    trained = {path.rpartition("/")[2] for path, cell in cells.items() if cell.trainable}
    assert trained == {name for name, _ in module().named_parameters()}
    assert len(cells) > len(trained)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_dropout_has_to_say_whether_it_is_in_training(rate):
    layers = nn.Sequential(nn.Linear(3, 4), nn.Dropout(rate))
    with pytest.raises(BuildError, match="does not say how layers behave"):
        TorchModule(layers)
    with pytest.raises(BuildError, match="draws random numbers"):
        TorchModule(layers, training=True)
    assert not TorchModule(layers, training=False).mixes_batch
    assert not TorchModule(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0))).mixes_batch  # it drops nothing


def test_it_computes_what_the_module_does_in_evaluation_mode():
    native, x = module(), VECTORS.sample(5, rng=0)
    test = ComponentTest(TorchModule(native, training=False), {"inputs": VECTORS}, "torch")
    assert native.training  # the module itself was not touched
    expected = native.eval()(torch.from_numpy(x)).detach().numpy()
    test.test("call", x, expected=expected)
    test.executor.set_weights({"torch-module/4.bias": np.array([5, 6], np.float32)})
    shift = np.array([5, 6]) - native[4].bias.detach().numpy()
    test.test("call", x, expected=expected + shift, rtol=1e-4)


def test_gradients_flow():
    x = VECTORS.sample(5, rng=0)
    found = weight_gradients(TorchModule(module(), training=False), lambda c, y: (c.call(y),), VECTORS, x, "torch")
    native = module().eval()
    result = native(torch.from_numpy(x))
    torch.sum(torch.sin(torch.arange(1.0, 11.0)).reshape(5, 2) * result).backward()
    assert sorted(found) == sorted(name for name, _ in native.named_parameters())
    for name, parameter in native.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_another_backend_is_refused(backend):
    with pytest.raises(BackendError, match="torch backend only"):
        ComponentTest(TorchModule(nn.Linear(3, 2)), {"inputs": VECTORS}, backend)


def test_something_else_is_refused():
    with pytest.raises(BuildError, match=r"torch\.nn\.Module"):
        TorchModule(lambda x: x)


def test_as_the_network_of_a_policy_and_as_its_whole_trunk():
    class Trunk(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, observations):
            return self.layer(observations["a"]) + observations["b"][..., None]

    space = Dict(a=FloatBox(shape=(3,)), b=FloatBox()).with_batch_rank()
    for policy in (
        Policy(TorchModule(nn.Linear(4, 4)), IntBox(3)),
        Policy(TorchModule(Trunk(), encodes_observations=True), IntBox(3)),
    ):
        test = ComponentTest(policy, {"observations": space}, "torch")
        assert test.test("mode", space.sample(2, rng=0)).shape == (2,)


def test_a_copy_has_variables_of_its_own():
    class Twins(Component):
        def __init__(self):
            super().__init__("root")
            self.online = TorchModule(nn.Linear(3, 2), scope="online")
            self.target = self.online.copy(scope="target", trainable=False)

        @api
        def call(self, inputs):
            return self.online.call(inputs), self.target.call(inputs)

        @api
        def sync_target(self):
            self.target.sync(self.online)

    executor = build(Twins(), {"inputs": VECTORS}, backend="torch")
    executor.set_weights({"root/online/bias": np.array([7, 8], np.float32)})
    first, second = executor.call(np.zeros((1, 3), np.float32))
    assert not np.allclose(first, second)
    executor.sync_target()
    first, second = executor.call(np.zeros((1, 3), np.float32))
    np.testing.assert_array_equal(first, second)


def test_importing_the_components_imports_no_framework():
    code = "import sys, rlweave.components; print([m for m in ('torch', 'jax', 'flax') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

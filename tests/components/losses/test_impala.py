"""The loss of IMPALA against its formula in float64, and what its gradient reaches, on every backend."""

import numpy as np
import pytest

from rlweave.components import IMPALALoss
from rlweave.errors import ConfigError
from rlweave.graph import Component, api, build, gradients
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest
from tests.components.stored_inputs import StoredInputs

NAMES = ("log_probs", "advantages", "values", "value_targets", "entropies")
SPACES = dict.fromkeys(NAMES, FloatBox(add_batch_rank=True, add_time_rank=True))


def sample(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 5)).astype(np.float32) for name in NAMES}


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_it_equals_the_formula_item_by_item(backend):
    x = sample()
    policy = value = entropy = 0.0
    for t in range(3):
        for b in range(5):
            at = {name: float(array[t, b]) for name, array in x.items()}
            policy -= at["log_probs"] * at["advantages"] / 15
            value += 0.5 * (at["values"] - at["value_targets"]) ** 2 / 15
            entropy += at["entropies"] / 15
    loss, metrics = ComponentTest(IMPALALoss(0.7, 0.02), SPACES, backend).test("loss", **x)
    np.testing.assert_allclose(loss, policy + 0.7 * value - 0.02 * entropy, rtol=1e-5)
    assert metrics == pytest.approx({"policy_loss": policy, "value_loss": value, "entropy": entropy}, rel=1e-5)


class Gradients(Component):
    """Gradients of the loss by everything that goes in."""

    def __init__(self, inputs):
        super().__init__("gradients")
        self.inputs, self.loss = StoredInputs(inputs), IMPALALoss(0.7, 0.02)

    @api
    def compute(self):
        x = self.inputs.read()
        loss, _ = self.loss.loss(*(x[name] for name in NAMES))
        return gradients(loss, self.inputs.variables())


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_advantages_and_targets_are_constants(backend):
    x = sample(1)
    found = build(Gradients(x), {}, backend=backend).compute()
    found = {path.rsplit("/", 1)[-1]: value for path, value in found.items()}
    expected = {
        "log_probs": -x["advantages"] / 15,
        "values": 0.7 * (x["values"] - x["value_targets"]) / 15,
        "entropies": np.full((3, 5), -0.02 / 15),
        "advantages": np.zeros((3, 5)),
        "value_targets": np.zeros((3, 5)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_a_negative_weight_is_refused():
    with pytest.raises(ConfigError, match="entropy_coefficient is out of range"):
        IMPALALoss(entropy_coefficient=-0.1)

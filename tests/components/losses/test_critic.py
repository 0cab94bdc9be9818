"""The loss of critics, the temperature and the policy's loss against numbers worked out by hand, on every backend."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.components import CriticLoss, SoftPolicyLoss, Temperature
from rlweave.graph import Component, api, build, gradients, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE

ROWS = FloatBox(add_batch_rank=True)
PAIRS = FloatBox(shape=(2,), add_batch_rank=True)
SPACES = {
    "rewards": ROWS, "terminated": BoolBox(add_batch_rank=True), "discounts": ROWS, "next_values": PAIRS,
    "next_log_probs": ROWS, "alpha": FloatBox(), "values": PAIRS, "targets": ROWS, "weights": ROWS,
}  # fmt: skip


def floats(*numbers):
    return np.array(numbers, np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_targets_and_loss(backend):
    test = ComponentTest(CriticLoss(), SPACES, backend)
    # 1 + .8 (min(0, 1) - .9 * .5) = .64; nothing follows where the episode terminated
    common = floats(1, 1), np.array([False, True]), floats(0.8, 0.8), floats([0, 1], [0, 1])
    targets = test.test("targets", *common, floats(0.5, 0.5), np.float32(0.9), expected=floats(0.64, 1), rtol=1e-6)
    # half of (.64 - 0)^2 + (.64 - 1)^2
    test.test("loss", floats([0, 1]), targets[:1], floats(1), expected=np.float32(0.2696), rtol=1e-6)
    # halved by its weight, beside 0.5 (1 + 0)
    test.test("loss", floats([0, 1], [0, 1]), targets, floats(0.5, 1), expected=np.float32(0.3174), rtol=1e-6)
    test.test("sizes", floats([0, 1]), targets[:1], expected=floats(0.5), rtol=1e-6)
    plain = {name: space for name, space in SPACES.items() if name not in ("next_log_probs", "alpha", "weights")}
    test = ComponentTest(CriticLoss(), plain, backend)
    test.test("targets", *common, expected=floats(1, 1), rtol=1e-6)  # no entropy: 1 + .8 min(0, 1)
    test.test("loss", floats([0, 1]), targets[:1], expected=np.float32(0.2696), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_temperature_loss(backend):
    test = ComponentTest(Temperature(-2.0, 0.9), {"log_probs": ROWS}, backend)
    assert test.test("alpha") == pytest.approx(0.9)
    # -log .9 * (mean(.5, 1.5) - 2)
    test.test("loss", floats(0.5, 1.5), expected=np.float32(-np.log(0.9) * -1.0), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_loss_of_a_soft_policy(backend):
    test = ComponentTest(SoftPolicyLoss(), {"log_probs": ROWS, "values": PAIRS, "alpha": FloatBox()}, backend)
    # .9 * .5 - min(.1, .2)
    test.test("loss", floats(0.5), floats([0.1, 0.2]), np.float32(0.9), expected=np.float32(0.35), rtol=1e-6)


class TemperatureProbe(Component):
    """Gradients of the temperature's loss, and of alpha times a log-probability, by temperature and log-probability."""

    def __init__(self):
        super().__init__("probe")
        self.temperature = Temperature(-2.0, 0.9)

    def create_variables(self):
        self.log_probs = self.variable("log_probs", (2,), np.array([0.5, 1.5], np.float32))

    @graph_fn
    def _read(self):
        return self.log_probs.value

    @graph_fn
    def _product(self, alpha, log_probs):
        return ops.sum(alpha * log_probs)

    @api
    def of_loss(self):
        return gradients(self.temperature.loss(self._read()), self.variables(), allow_unused=True)

    @api
    def of_product(self):
        product = self._product(self.temperature.alpha(), self._read())
        return gradients(product, self.variables(), allow_unused=True)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_the_temperature_sees_no_policy_and_the_policy_no_temperature(backend):
    executor = build(TemperatureProbe(), {}, backend=backend)
    found = {path.rpartition("/")[2]: value for path, value in executor.of_loss().items()}
    assert found["log_alpha"] == pytest.approx(1.0)  # minus the mean of log-probability + target: -(1 - 2)
    np.testing.assert_array_equal(found["log_probs"], 0)
    found = {path.rpartition("/")[2]: value for path, value in executor.of_product().items()}
    assert found["log_alpha"] == 0
    np.testing.assert_allclose(found["log_probs"], 0.9, rtol=1e-6)

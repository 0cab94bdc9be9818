"""Losses of adaptation: closed forms, and the surrogate's first and second derivatives."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import ConfigError
from rlweave.extras.adaptation_losses import SquaredErrorLoss, SurrogateLoss
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
ROWS = FloatBox(add_batch_rank=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_squared_error_is_a_mean_over_all_axes(backend):
    rng = np.random.default_rng(0)
    predictions, targets = rng.normal(size=(2, 5, 3)).astype(np.float32)
    space = FloatBox(shape=(3,), add_batch_rank=True)
    test = ComponentTest(SquaredErrorLoss(), {"predictions": space, "targets": space}, backend)
    test.test("loss", predictions, targets, expected=np.mean((predictions - targets) ** 2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_surrogate_weighs_ratios_by_advantages(backend, clip):
    ratios = np.array([0.5, 1.0, 1.1, 2.0, 0.5, 2.0], np.float32)
    advantages = np.array([1.0, 2.0, 1.0, 1.0, -1.0, -1.0], np.float32)
    old = np.linspace(-2, -1, 6, dtype=np.float32)
    counted = ratios if clip is None else np.array([0.5, 1.0, 1.1, 1.2, 0.8, 2.0])
    spaces = {"log_probs": ROWS, "old_log_probs": ROWS, "advantages": ROWS}
    test = ComponentTest(SurrogateLoss(clip), spaces, backend)
    test.test("loss", old + np.log(ratios), old, advantages, expected=-np.mean(counted * advantages))


class _Slopes(Component):
    """Log-probabilities w x, whose gradient is x and whose second derivative is 0."""

    def __init__(self):
        super().__init__("root")
        self.loss = SurrogateLoss()

    def create_variables(self):
        self.w = self.variable("w", (), 0.7)

    @api
    def slopes(self, x, advantages):
        log_probs = self._log_probs(x)
        slope = graph.gradients(self.loss.loss(log_probs, log_probs, advantages), self.variables())["root/w"]
        return slope, graph.gradients(self._same(slope), self.variables())["root/w"]

    @graph_fn
    def _log_probs(self, x):
        return self.w.value * x

    @graph_fn
    def _same(self, slope):
        return ops.sum(slope)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_at_the_policy_that_acted_the_first_derivative_is_the_policy_gradient_and_the_second_has_its_square(backend):
    rng = np.random.default_rng(1)
    x, advantages = rng.normal(size=(2, 9)).astype(np.float32)
    first, second = build(_Slopes(), {"x": ROWS, "advantages": ROWS}, backend=backend).slopes(x, advantages)
    np.testing.assert_allclose(first, -np.mean(advantages * x), rtol=1e-5)
    np.testing.assert_allclose(second, -np.mean(advantages * x**2), rtol=1e-5)


def test_a_clip_is_above_0():
    with pytest.raises(ConfigError, match="clip is out of range"):
        SurrogateLoss(0.0)

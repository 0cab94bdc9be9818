"""The loss of advantage actor-critic against closed forms, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.components import ActorCriticLoss
from rlweave.graph import Component, api, build, gradients
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import ComponentTest
from tests.components.stored_inputs import StoredInputs

on_every_backend = pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
NAMES = ("log_probs", "advantages", "values", "returns", "entropies")


def spaces(mask: bool = False, **ranks: Any) -> dict[str, Any]:
    ranks = ranks or {"add_batch_rank": True}
    return {name: FloatBox(**ranks) for name in NAMES} | ({"mask": BoolBox(**ranks)} if mask else {})


def sample(size: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=size).astype(np.float32) for name in NAMES}


def oracle(x: dict[str, np.ndarray], c_value: float, c_entropy: float) -> tuple[float, dict[str, float]]:
    """The formulas of the paper, item by item in float64."""
    n = len(x["log_probs"])
    policy = value = entropy = 0.0
    for i in range(n):
        log_prob, advantage, v, target, h = (float(x[name][i]) for name in NAMES)
        policy -= log_prob * advantage / n
        value += 0.5 * (target - v) ** 2 / n
        entropy += h / n
    metrics = {"policy_loss": policy, "value_loss": value, "entropy": entropy}
    return policy + c_value * value - c_entropy * entropy, metrics


def check(result: Any, expected: tuple[float, dict[str, float]]) -> None:
    loss, metrics = result
    np.testing.assert_allclose(loss, expected[0], rtol=2e-5)
    assert set(metrics) == set(expected[1])
    for name, value in expected[1].items():
        np.testing.assert_allclose(metrics[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


@on_every_backend
def test_loss_equals_the_formula(backend: str) -> None:
    x = sample()
    result = ComponentTest(ActorCriticLoss(0.7, 0.02), spaces(), backend).test("loss", **x)
    check(result, oracle(x, c_value=0.7, c_entropy=0.02))


@on_every_backend
def test_padding_counts_nowhere(backend: str) -> None:
    x = sample()
    padding = {**dict.fromkeys(NAMES, 1e4), "log_probs": -np.inf}
    padded = {name: np.append(value, np.full(3, padding[name], np.float32)) for name, value in x.items()}
    test = ComponentTest(ActorCriticLoss(0.5, 0.01), spaces(mask=True), backend)
    check(test.test("loss", **padded, mask=np.arange(10) < 7), oracle(x, c_value=0.5, c_entropy=0.01))
    loss, metrics = test.test("loss", **padded, mask=np.zeros(10, bool))
    assert loss == 0.0
    assert not any(metrics.values())


def test_ranks_of_time_and_batch_are_one() -> None:
    x = sample(12)
    both = ComponentTest(ActorCriticLoss(0.5, 0.01), spaces(add_batch_rank=True, add_time_rank=True))
    check(both.test("loss", **{k: v.reshape(3, 4) for k, v in x.items()}), oracle(x, c_value=0.5, c_entropy=0.01))


class Gradients(Component):
    """Gradients of the loss by everything that goes in."""

    def __init__(self, loss: ActorCriticLoss, inputs: dict[str, np.ndarray]) -> None:
        super().__init__("gradients")
        self.inputs, self.loss = StoredInputs(inputs), loss

    @api
    def call(self) -> Any:
        loss, _ = self.loss.loss(**self.inputs.read())
        return gradients(loss, self.inputs.variables())


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_gradients_are_those_of_the_formula_and_stop_at_what_is_given(backend: str) -> None:
    x = {
        "log_probs": np.array([-1.0, -2.0, -0.5, -1e30], np.float32),  # the last one is padding
        "advantages": np.array([2.0, -1.0, 0.5, 7.0], np.float32),
        "values": np.array([0.0, 1.0, 4.0, 9.0], np.float32),
        "returns": np.array([1.0, 1.0, 1.0, 1.0], np.float32),
        "entropies": np.ones(4, np.float32),
        "mask": np.arange(4) < 3,
    }
    found = build(Gradients(ActorCriticLoss(0.5, 0.1), x), backend=backend).call()
    found = {path.rpartition("/")[2]: gradient for path, gradient in found.items()}
    np.testing.assert_allclose(found["log_probs"], np.array([-2.0, 1.0, -0.5, 0.0]) / 3, rtol=1e-6)
    np.testing.assert_allclose(found["values"], 0.5 * np.array([-1.0, 0.0, 3.0, 0.0]) / 3, rtol=1e-6)
    np.testing.assert_allclose(found["entropies"], np.array([-0.1, -0.1, -0.1, 0.0]) / 3, rtol=1e-6)
    assert not found["advantages"].any()
    assert not found["returns"].any()

"""The loss of proximal policy optimization against closed forms, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.components import PPOLoss
from rlweave.errors import BuildError, ConfigError
from rlweave.graph import Component, api, build, gradients
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.stored_inputs import StoredInputs

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
REQUIRED = ("log_probs", "old_log_probs", "advantages", "values", "returns", "entropies")
RANK = {"add_batch_rank": True}


def spaces(*optional: str, **ranks: Any) -> dict[str, Any]:
    ranks = ranks or RANK
    found: dict[str, Any] = {name: FloatBox(**ranks) for name in (*REQUIRED, "old_values")}
    found |= {"mask": BoolBox(**ranks), "count": IntBox(0, 1000)}
    return {name: space for name, space in found.items() if name in (*REQUIRED, *optional)}


def sample(size: int = 7, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = {name: rng.normal(size=size).astype(np.float32) for name in REQUIRED}
    x["old_log_probs"] = x["log_probs"] + rng.normal(scale=0.2, size=size).astype(np.float32)
    return x


def oracle(
    x: dict[str, np.ndarray],
    *,
    clip: float,
    c_value: float,
    c_entropy: float,
    value_clip: float | None,
    normalize: bool,
) -> tuple[float, dict[str, float]]:
    """The formulas of the paper, item by item in float64."""
    x = {name: value.astype(np.float64) for name, value in x.items()}
    advantages = x["advantages"]
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    policy, value, kl, outside = [], [], [], []
    for i in range(len(advantages)):
        ratio = np.exp(x["log_probs"][i] - x["old_log_probs"][i])
        policy.append(-min(ratio * advantages[i], max(min(ratio, 1 + clip), 1 - clip) * advantages[i]))
        error = (x["values"][i] - x["returns"][i]) ** 2
        if value_clip is not None:
            old = x["old_values"][i]
            near = old + max(min(x["values"][i] - old, value_clip), -value_clip)
            error = max(error, (near - x["returns"][i]) ** 2)
        value.append(0.5 * error)
        kl.append(ratio - 1 - np.log(ratio))
        outside.append(abs(ratio - 1) > clip)
    metrics = {
        "policy_loss": np.mean(policy),
        "value_loss": np.mean(value),
        "entropy": x["entropies"].mean(),
        "approx_kl": np.mean(kl),
        "clip_fraction": np.mean(outside),
    }
    return metrics["policy_loss"] + c_value * metrics["value_loss"] - c_entropy * metrics["entropy"], metrics


def check(result: Any, expected: tuple[float, dict[str, float]]) -> None:
    loss, metrics = result
    np.testing.assert_allclose(loss, expected[0], rtol=2e-5)
    assert set(metrics) == set(expected[1])
    for name, value in expected[1].items():
        np.testing.assert_allclose(metrics[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


@on_every_backend
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_loss_equals_the_formula(backend: str, normalize: bool, value_clip: float | None) -> None:
    x = sample()
    if value_clip is not None:
        x["old_values"] = x["values"] + np.random.default_rng(1).normal(size=7).astype(np.float32)
    loss = PPOLoss(0.1, value_clip, value_coefficient=0.7, entropy_coefficient=0.02, normalize_advantages=normalize)
    result = ComponentTest(loss, spaces(*x), backend).test("loss", **x)
    check(result, oracle(x, clip=0.1, c_value=0.7, c_entropy=0.02, value_clip=value_clip, normalize=normalize))


@on_every_backend
def test_padding_counts_nowhere(backend: str) -> None:
    x = sample()
    padded = {name: np.concatenate([value, np.full(3, 1e4, np.float32)]) for name, value in x.items()}
    mask = np.arange(10) < 7
    test = ComponentTest(PPOLoss(entropy_coefficient=0.01), spaces("mask"), backend)
    expected = oracle(x, clip=0.2, c_value=0.5, c_entropy=0.01, value_clip=None, normalize=True)
    check(test.test("loss", **padded, mask=mask), expected)
    loss, metrics = test.test("loss", **padded, mask=np.zeros(10, bool))
    assert loss == 0.0
    assert not any(metrics.values())


@on_every_backend
@pytest.mark.parametrize("advantages", [[0.1], [0.1] * 7, [-3e4] * 5, [0.0] * 3])
def test_equal_advantages_are_normalized_to_zero(backend: str, advantages: list[float]) -> None:
    x = sample(len(advantages))
    x["advantages"] = np.array(advantages, np.float32)
    _, metrics = ComponentTest(PPOLoss(), spaces(), backend).test("loss", **x)
    assert metrics["policy_loss"] == 0.0
    assert np.isfinite(metrics["value_loss"])


def test_ranks_of_time_and_batch_are_one() -> None:
    x = sample(12)
    expected = ComponentTest(PPOLoss(), spaces()).test("loss", **x)
    both = ComponentTest(PPOLoss(), spaces(add_batch_rank=True, add_time_rank=True))
    check(both.test("loss", **{name: value.reshape(3, 4) for name, value in x.items()}), expected)


@on_every_backend
def test_clip_on_a_schedule(backend: str) -> None:
    x = sample()
    loss = PPOLoss({"type": "linear", "start": 0.3, "end": 0.0, "steps": 100})
    test = ComponentTest(loss, spaces("count"), backend)
    for count, clip in ((0, 0.3), (50, 0.15), (90, 0.03)):
        check(
            test.test("loss", **x, count=np.int32(count)),
            oracle(x, clip=clip, c_value=0.5, c_entropy=0.0, value_clip=None, normalize=True),
        )


class Gradients(Component):
    """Gradients of the loss by everything that goes in."""

    def __init__(self, loss: PPOLoss, inputs: dict[str, np.ndarray]) -> None:
        super().__init__("gradients")
        self.inputs, self.loss = StoredInputs(inputs), loss

    @api
    def call(self):
        loss, _ = self.loss.loss(**self.inputs.read())
        return gradients(loss, self.inputs.variables())


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_gradients_stop_at_the_clip_and_at_what_is_given(backend: str) -> None:
    loss = PPOLoss(0.2, value_coefficient=0.5, entropy_coefficient=0.1, normalize_advantages=False)
    log_ratio = np.log(np.array([1.0, 1.5, 1.5, 0.5, 0.5, 9.9], np.float32))
    log_ratio[-1] = 1e4  # padding, with an infinite ratio
    x = {
        "log_probs": log_ratio,
        "old_log_probs": np.zeros(6, np.float32),
        "advantages": np.array([2, 1, -1, 1, -1, 5], np.float32),
        "values": np.arange(6, dtype=np.float32),
        "returns": np.ones(6, np.float32),
        "entropies": np.ones(6, np.float32),
        "mask": np.arange(6) < 5,
    }
    found = build(Gradients(loss, x), backend=backend).call()
    found = {path.rpartition("/")[2]: gradient for path, gradient in found.items()}
    # moves that the clip has already paid for get no gradient: ratio 1.5 of a good action, 0.5 of a bad one
    np.testing.assert_allclose(found["log_probs"], np.array([-2, 0, 1.5, -0.5, 0, 0]) / 5, rtol=1e-5)
    np.testing.assert_allclose(found["values"], np.array([-0.5, 0, 0.5, 1, 1.5, 0]) / 5, rtol=1e-5)
    np.testing.assert_allclose(found["entropies"], np.array([-0.1] * 5 + [0]) / 5, rtol=1e-5)
    for name in ("old_log_probs", "advantages", "returns"):
        assert not found[name].any(), name


def test_what_contradicts_is_refused() -> None:
    with pytest.raises(BuildError, match="old_values is missing"):
        ComponentTest(PPOLoss(value_clip=0.2), spaces())
    with pytest.raises(BuildError, match="old_values is of no use"):
        ComponentTest(PPOLoss(), spaces("old_values"))
    with pytest.raises(BuildError, match="count is missing"):
        ComponentTest(PPOLoss({"type": "linear", "start": 0.2, "end": 0.1, "steps": 9}), spaces())
    for options in ({"clip": 0.0}, {"value_clip": -1.0}):
        with pytest.raises(ConfigError):
            PPOLoss(**options)


def test_a_misspelled_surrogate_is_refused():
    with pytest.raises(BuildError, match="surogate"):

        class Penalized(PPOLoss):
            def surogate(self, ratio: Any, log_ratio: Any, advantages: Any, clip: Any) -> Any:
                return ratio


def test_a_ratio_on_the_edge_is_not_outside() -> None:
    # exp(-200) is 0, and 1 away from 1
    x = {name: np.zeros(2, np.float32) for name in REQUIRED} | {"log_probs": np.array([-200.0, 0.0], np.float32)}
    _, metrics = ComponentTest(PPOLoss(clip=1.0, normalize_advantages=False), spaces()).test("loss", **x)
    assert metrics["clip_fraction"] == 0.0
    x["log_probs"][1] = 1.0  # e is more than 1 away from 1
    _, metrics = ComponentTest(PPOLoss(clip=1.0, normalize_advantages=False), spaces()).test("loss", **x)
    assert metrics["clip_fraction"] == 0.5

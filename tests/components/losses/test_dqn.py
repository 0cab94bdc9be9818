"""The loss of deep Q-learning against numbers with a known answer, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave import ops
from rlweave.components import DQNLoss
from rlweave.errors import BuildError, ConfigError
from rlweave.graph import Component, api, build, gradients, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.stored_inputs import StoredInputs

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)


def batch(shape: tuple[int, ...] = ()) -> FloatBox:
    return FloatBox(shape=shape, add_batch_rank=True)


def spaces(actions: int, action_shape: tuple[int, ...] = (), *optional: str) -> dict[str, Any]:
    q = batch((*action_shape, actions))
    found = {
        "q_values": q,
        "actions": IntBox(actions, shape=action_shape, add_batch_rank=True),
        "rewards": batch(),
        "terminated": BoolBox(add_batch_rank=True),
        "target_q_next": q,
        "online_q_next": q,
        "weights": batch(),
        "discounts": batch(),
    }
    return {name: space for name, space in found.items() if name in [*list(found)[:5], *optional]}


def floats(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


ONE_COMPONENT = {
    "q_values": floats([[10, -10], [-0.101, -90.6]]),
    "actions": np.array([0, 1], np.int32),
    "rewards": floats([9.4, -1.23]),
    "terminated": np.array([False, False]),
    "target_q_next": floats([[12, -8], [22.3, 10.5]]),
}
THREE_COMPONENTS = {
    "q_values": floats(
        [
            [[10, -10, 9.8, 2], [20.2, -0.6, 0.001, 98.1], [10, -10, 9.8, 2]],
            [[4.1, -11.1, 7.5, 2.1], [21.3, 9.5, -0.101, -90.6], [21.3, 9.5, -0.101, -90.6]],
        ]
    ),
    "actions": np.array([[0, 3, 2], [1, 2, 0]], np.int32),
    "rewards": floats([9.4, -1.23]),
    "terminated": np.array([False, True]),
    "target_q_next": floats(
        [
            [[12, -8, 7.8, 4], [16.2, -2.6, -6.001, 90.1], [12, -8, 7.8, 4]],
            [[5.1, -12.1, 8.5, 3.1], [22.3, 10.5, 1.098, -89.2], [22.3, 10.5, 1.098, -89.2]],
        ]
    ),
}
_Q = np.arange(1, 13).reshape(2, 2, 3) + np.arange(4).reshape(4, 1, 1, 1)
TWO_BY_TWO = {
    "q_values": floats(_Q),
    "actions": np.array([[[0, 1], [2, 0]], [[1, 2], [0, 1]], [[2, 0], [1, 2]], [[0, 1], [1, 1]]], np.int32),
    "rewards": floats([-1, -2, -3, -4]),
    "terminated": np.array([False, False, True, False]),
    "target_q_next": floats(_Q + 0.5),
    "online_q_next": floats(_Q + 0.6),
}


@on_every_backend
@pytest.mark.parametrize(
    ("loss", "inputs", "per_item", "mean"),
    [
        (DQNLoss(1.0, double=False, huber_delta=None), ONE_COMPONENT, [64.98, 6235.09445], 3150.037225),
        (
            DQNLoss(0.8, double=False, huber_delta=None, reduce_components="td"),
            THREE_COMPONENTS,
            [0.138689, 10.563140],
            5.350915,
        ),
        (
            DQNLoss(1.0, double=True, huber_delta=None, reduce_components="td"),
            TWO_BY_TWO,
            [0.28125, 0.125, 69.03125, 2.53125],
            17.9921875,
        ),
    ],
    ids=["one component, max", "(3,), max", "(2, 2), double"],
)
def test_known_losses(
    loss: DQNLoss, inputs: dict[str, np.ndarray], per_item: list[float], mean: float, backend: str
) -> None:
    shape = inputs["actions"].shape[1:]
    test = ComponentTest(loss, spaces(inputs["q_values"].shape[-1], shape, *inputs), backend)
    errors = np.sqrt(2 * floats(per_item))
    test.test("loss_per_item", **inputs, expected=(floats(per_item), errors), rtol=2e-5)
    test.test("td_loss", **inputs, expected=(floats(mean), errors), rtol=2e-5)


def test_reduction_of_losses_does_not_let_opposite_errors_cancel() -> None:
    inputs = {
        "q_values": np.zeros((1, 2, 2), np.float32),
        "actions": np.zeros((1, 2), np.int32),
        "rewards": floats([0]),
        "terminated": np.array([False]),
        "target_q_next": floats([[[3, 3], [-3, -3]]]),
    }
    for reduction, expected in (("td", 0.0), ("loss", 4.5)):
        loss = DQNLoss(1.0, double=False, huber_delta=None, reduce_components=reduction)
        value, errors = ComponentTest(loss, spaces(2, (2,))).test("loss_per_item", **inputs)
        np.testing.assert_allclose(value, [expected], atol=1e-6)
        np.testing.assert_allclose(errors, [np.sqrt(2 * expected)], atol=1e-6)


@on_every_backend
def test_huber_loss(backend: str) -> None:
    class Huber(Component):
        @graph_fn
        def call(self, inputs):
            return ops.huber_loss(inputs, ops.zeros_like(inputs), 1.0)

    test = ComponentTest(Huber(), {"inputs": batch()}, backend)
    test.test("call", floats([0.5, -1, 1.5, -3]), expected=floats([0.125, 0.5, 1.0, 2.5]))


@on_every_backend
def test_importance_weights_multiply_the_loss_and_never_the_error(backend: str) -> None:
    weights = floats([2.0, 0.5])
    test = ComponentTest(DQNLoss(1.0, double=False, huber_delta=1.0), spaces(2, (), "weights"), backend)
    value, errors = test.test("loss_per_item", **ONE_COMPONENT, weights=weights)
    np.testing.assert_allclose(errors, [11.4, 111.67], rtol=1e-5)
    np.testing.assert_allclose(value, (floats([11.4, 111.67]) - 0.5) * weights, rtol=1e-5)


@on_every_backend
def test_n_step_discount_and_windows_cut_short(backend: str) -> None:
    inputs = {**ONE_COMPONENT, "terminated": np.array([False, True])}
    fixed = ComponentTest(DQNLoss(0.9, 3, double=False, huber_delta=None), spaces(2), backend)
    _, errors = fixed.test("loss_per_item", **inputs)
    np.testing.assert_allclose(errors, [abs(9.4 + 0.9**3 * 12 - 10), abs(-1.23 + 90.6)], rtol=1e-5)
    each = ComponentTest(DQNLoss(0.9, 3, double=False, huber_delta=None), spaces(2, (), "discounts"), backend)
    _, errors = each.test("loss_per_item", **inputs, discounts=floats([0.81, 0.9]))
    np.testing.assert_allclose(errors, [abs(9.4 + 0.81 * 12 - 10), abs(-1.23 + 90.6)], rtol=1e-5)


class Gradients(Component):
    """Gradients of the loss, and of the errors, by everything that goes in."""

    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        super().__init__("gradients")
        self.inputs = StoredInputs(inputs)
        self.loss = DQNLoss(0.9, double=True, huber_delta=None)

    @api
    def call(self):
        loss, errors = self.loss.td_loss(**self.inputs.read())
        return gradients(self._sum(loss, errors), self.inputs.variables())

    @graph_fn
    def _sum(self, loss, errors):
        return loss + ops.sum(errors)


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_targets_and_priorities_get_no_gradient(backend: str) -> None:
    inputs = {**ONE_COMPONENT, "online_q_next": floats([[0, 1], [1, 0]])}
    found = build(Gradients(inputs), backend=backend).call()
    found = {path.rpartition("/")[2]: gradient for path, gradient in found.items()}
    q, target = inputs["q_values"], inputs["rewards"] + 0.9 * floats([-8, 22.3])
    expected = np.zeros((2, 2), np.float32)
    expected[[0, 1], inputs["actions"]] = (q[[0, 1], inputs["actions"]] - target) / 2
    np.testing.assert_allclose(found.pop("q_values"), expected, rtol=1e-5)
    assert sorted(found) == ["online_q_next", "rewards", "target_q_next"]
    assert not any(gradient.any() for gradient in found.values())


def test_time_major_batches_are_averaged_over_both_ranks() -> None:
    both = {"add_batch_rank": True, "add_time_rank": True}
    loss = DQNLoss(1.0, double=False, huber_delta=None)
    test = ComponentTest(
        loss,
        {
            "q_values": FloatBox(shape=(2,), **both),
            "actions": IntBox(2, **both),
            "rewards": FloatBox(**both),
            "terminated": BoolBox(**both),
            "target_q_next": FloatBox(shape=(2,), **both),
        },
    )
    stacked = {name: np.stack([x, x, x]) for name, x in ONE_COMPONENT.items()}
    value, errors = test.test("td_loss", **stacked)
    np.testing.assert_allclose(value, 3150.037225, rtol=1e-5)
    assert errors.shape == (3, 2)


@on_every_backend
def test_components_of_nested_actions_count_alike(backend: str) -> None:
    # the same six components, as one array and as two leaves of a nested space (one of them boolean)
    rng = np.random.default_rng(0)
    q, q_next, q_online = (rng.normal(size=(5, 3, 2)).astype(np.float32) for _ in range(3))
    actions = rng.integers(0, 2, (5, 3), np.int32)
    rewards, terminated = rng.normal(size=5).astype(np.float32), rng.random(5) < 0.5
    for reduction in ("loss", "td"):
        loss = DQNLoss(0.9, double=True, reduce_components=reduction)
        whole = ComponentTest(loss, spaces(2, (3,), "online_q_next"), backend)
        expected = whole.test("loss_per_item", q, actions, rewards, terminated, q_next, q_online)

        nested_q = Dict(a=batch((2,)), b=Tuple(batch((2, 2))))
        nested = ComponentTest(
            DQNLoss(0.9, double=True, reduce_components=reduction),
            {
                **spaces(2, (3,), "online_q_next"),
                **dict.fromkeys(("q_values", "target_q_next", "online_q_next"), nested_q),
                "actions": Dict(a=BoolBox(add_batch_rank=True), b=Tuple(IntBox(2, shape=(2,), add_batch_rank=True))),
            },
            backend,
        )

        def split(x: np.ndarray) -> dict[str, Any]:
            return {"a": x[:, 0], "b": (x[:, 1:],)}

        nested_actions = {"a": actions[:, 0].astype(bool), "b": (actions[:, 1:],)}
        nested.test(
            "loss_per_item",
            split(q),
            nested_actions,
            rewards,
            terminated,
            split(q_next),
            split(q_online),
            expected=expected,
        )


def test_what_contradicts_is_refused() -> None:
    with pytest.raises(BuildError, match="double Q-learning needs online_q_next"):
        ComponentTest(DQNLoss(double=True), spaces(2))
    with pytest.raises(BuildError, match="of no use without double"):
        ComponentTest(DQNLoss(double=False), spaces(2, (), "online_q_next"))
    with pytest.raises(ConfigError, match="reduce_components|reduce components"):
        DQNLoss(reduce_components="tds")
    for options in ({"discount": 1.1}, {"n_step": 0}, {"huber_delta": 0.0}):
        with pytest.raises(ConfigError):
            DQNLoss(**options)


def test_q_values_of_other_actions_are_refused_with_the_name_of_the_leaf() -> None:
    spaces = {
        "q_values": Dict(x=batch((2,))),
        "actions": Dict(x=IntBox(2, add_batch_rank=True), y=IntBox(2, add_batch_rank=True)),
        "rewards": batch(),
        "terminated": BoolBox(add_batch_rank=True),
        "target_q_next": Dict(x=batch((2,)), y=batch((2,))),
    }
    with pytest.raises(BuildError, match=r"(?s)nested differently.*'y'.*\['x'\]"):
        ComponentTest(DQNLoss(double=False), spaces, methods=["td_loss"])

"""Results that the gradient does not see: targets, advantages, priorities, metrics."""

import functools
import operator

import numpy as np
import pytest

from rlweave import components as c
from rlweave.components.losses.critic import CriticLoss
from tests.components.gradient_probes import DIFFERENTIABLE, input_gradients

ROWS = {name: [0.5, -0.2, 0.3] for name in ("log_probs", "old_log_probs", "advantages", "values", "returns", "rewards")}
ROWS |= {"entropies": [0.1, 0.2, 0.3], "old_values": [0.4, 0.1, 0.0]}
STEPS = {name: [[0.5, -0.2], [0.3, 0.1]] for name in ("rewards", "values", "next_values", "log_probs", "old_log_probs")}
PAIRS = {name: [[0.5, -0.2], [0.3, 0.1]] for name in ("q_values", "target_q_next", "online_q_next")}
ENDS = np.array([[False, True], [False, False]]), np.array([[False, False], [True, False]])
TERMINATED, ACTIONS = np.array([False, True]), np.array([0, 1], np.int32)
TARGETS = {"rewards": [1.0, 2.0], "discounts": [0.9, 0.8], "next_values": [[0.1, 0.2], [0.3, 0.4]]}
TARGETS |= {"log_probs": [0.1, 0.2], "alpha": 0.5, "values": [[0.1, 0.2], [0.3, 0.4]], "targets": [0.5, 0.6]}


CASES = {
    "advantages": (
        c.GeneralizedAdvantageEstimation,
        lambda gae, x: gae.estimate(x["rewards"], x["values"], x["next_values"], *ENDS)[0],
        STEPS,
    ),
    "value targets": (
        c.GeneralizedAdvantageEstimation,
        lambda gae, x: gae.estimate(x["rewards"], x["values"], x["next_values"], *ENDS)[1],
        STEPS,
    ),
    **{
        f"V-trace {i}": (
            c.VTrace,
            lambda v, x, i=i: v.estimate(
                x["log_probs"], x["old_log_probs"], x["rewards"], x["values"], x["next_values"], *ENDS
            )[i],
            STEPS,
        )
        for i in range(3)
    },
    "TD errors": (
        c.DQNLoss,
        lambda loss, x: loss.td_loss(
            x["q_values"], ACTIONS, x["rewards"], TERMINATED, x["target_q_next"], x["online_q_next"]
        )[1],
        {**PAIRS, "rewards": [1.0, 2.0]},
    ),
    "critics' targets": (
        CriticLoss,
        lambda loss, x: loss.targets(
            x["rewards"], TERMINATED, x["discounts"], x["next_values"], x["log_probs"], x["alpha"]
        ),
        TARGETS,
    ),
    "critics' errors": (CriticLoss, lambda loss, x: loss.sizes(x["values"], x["targets"]), TARGETS),
}


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize("name", CASES)
def test_no_gradient_reaches_an_input(name, backend):
    make, call, inputs = CASES[name]
    total, found = input_gradients(make(), call, inputs, backend)
    assert np.isfinite(total)
    assert not {path for path, gradient in found.items() if gradient.any()}


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (
            lambda: c.PPOLoss(0.2, value_clip=0.1),
            ("log_probs", "old_log_probs", "advantages", "values", "returns", "entropies"),
        ),
        (c.ActorCriticLoss, ("log_probs", "advantages", "values", "returns", "entropies")),
    ],
    ids=["ppo", "actor-critic"],
)
def test_metrics_of_losses_have_no_gradient(make, names, backend):
    def call(component, x):
        more = {"old_values": x["old_values"]} if isinstance(component, c.PPOLoss) else {}
        _, found = component.loss(*(x[name] for name in names), **more)
        assert len(found) >= 3
        return functools.reduce(operator.add, found.values())

    _, found = input_gradients(make(), call, ROWS, backend)
    assert not {path for path, gradient in found.items() if gradient.any()}

"""Masked policies: probabilities, entropies, Q-values and gradients as if forbidden actions did not exist."""

import numpy as np
import pytest

from rlweave.components import DuelingPolicy, EpsilonGreedy, Policy, QPolicy
from rlweave.components.distributions import MASKED
from rlweave.errors import SpecError
from rlweave.graph import Component, api
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

STATE = Dict(action_mask=BoolBox(shape=(4,)), inner=Dict(x=FloatBox(shape=(2,))))
MASKS = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
OBSERVATIONS = {"action_mask": MASKS, "inner": {"x": np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)}}
SPACES = {"observations": STATE.with_batch_rank(), "actions": IntBox(4, add_batch_rank=True)}
LAYERS = [{"type": "dense", "units": 8, "activation": "tanh"}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_policy_chooses_among_allowed_actions(backend):
    masked = ComponentTest(Policy(LAYERS, IntBox(4), observation_space=STATE, mask_leaf="action_mask"), SPACES, backend)
    free = ComponentTest(Policy(LAYERS, IntBox(4), observation_space=STATE), SPACES, backend)
    logits = free.test("parameters", OBSERVATIONS)
    some = np.where(MASKS.any(-1, keepdims=True), MASKS, True)
    p = np.exp(logits - logits.max(-1, keepdims=True)) * some
    p /= p.sum(-1, keepdims=True)
    actions = np.argmax(some, -1).astype(np.int32)
    log_probs, entropies = masked.test("log_prob_and_entropy", OBSERVATIONS, actions)
    np.testing.assert_allclose(log_probs, np.log(p[np.arange(5), actions]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(entropies, -np.sum(p * np.log(np.where(p > 0, p, 1)), -1), rtol=1e-4, atol=1e-5)
    assert entropies[2] == pytest.approx(0, abs=1e-6)  # one action
    for _ in range(30):
        drawn, log_probs, _ = masked.test("act", OBSERVATIONS)
        assert some[np.arange(5), drawn].all()
        assert np.isfinite(log_probs).all()
    np.testing.assert_array_equal(masked.test("mode", OBSERVATIONS), p.argmax(-1))


class Explorer(Component):
    def __init__(self, kind):
        super().__init__("explorer")
        self.policy = kind(LAYERS, IntBox(4), observation_space=STATE, mask_leaf="action_mask")
        self.exploration = EpsilonGreedy()

    @api
    def act(self, observations, epsilon):
        return self.exploration.select(self.policy.q_values(observations), epsilon)

    @api
    def q_values(self, observations):
        return self.policy.q_values(observations)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [QPolicy, DuelingPolicy])
def test_q_values_and_exploration_leave_forbidden_actions_out(backend, kind):
    test = ComponentTest(
        Explorer(kind), {"observations": STATE.with_batch_rank(), "epsilon": FloatBox(add_batch_rank=True)}, backend
    )
    q_values = test.test("q_values", OBSERVATIONS)
    np.testing.assert_array_equal(q_values[:4] == np.float32(MASKED), ~MASKS[:4])
    assert (q_values[4] > MASKED / 2).all()  # no action allowed: left as it is
    seen = [set() for _ in range(5)]
    for _ in range(60):
        for row, action in enumerate(test.test("act", OBSERVATIONS, np.ones(5, np.float32))):
            seen[row].add(int(action))
    assert seen == [{0, 1}, {1, 3}, {2}, {0, 1, 2, 3}, {0, 1, 2, 3}]


@pytest.mark.parametrize(
    ("mask_leaf", "actions", "state", "what"),
    [
        ("action_masc", IntBox(4), STATE, "did you mean 'action_mask'"),
        ("action_mask", IntBox(3), STATE, "for each action"),
        ("inner/x", IntBox(2), STATE, "for each action"),
        ("action_mask", IntBox(4, shape=(2,)), STATE, "one of N is chosen"),
        ("action_mask", FloatBox(), STATE, "one of N is chosen"),
        ("action_mask", IntBox(4), FloatBox(shape=(4,)), "a Dict with such a leaf"),
    ],
)
def test_what_cannot_be_a_mask_is_refused(mask_leaf, actions, state, what):
    with pytest.raises(SpecError, match=what):
        Policy(LAYERS, actions, observation_space=state, mask_leaf=mask_leaf)

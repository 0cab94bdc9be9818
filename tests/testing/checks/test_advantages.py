"""Values that learn from the policy's part of a loss."""

import pytest

from rlweave import graph, ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import Cause, Descriptor, check

SPACES = {
    "observations": FloatBox(shape=(3,), add_batch_rank=True),
    "actions": IntBox(3, add_batch_rank=True),
    "returns": FloatBox(add_batch_rank=True),
}


class ActorCritic(Component):
    """Two networks and their loss."""

    def __init__(self):
        super().__init__("actor-critic")
        self.policy, self.value = Dense(3, scope="policy"), Dense(1, scope="value")

    @api
    def loss(self, observations, actions, returns):
        logits, values = self.policy.call(observations), self.value.call(observations)
        return self.sum(self._policy_loss(logits, self.baseline(values), actions, returns), values, returns)

    def baseline(self, values):
        return graph.stop_gradient(values)

    @graph_fn
    def _policy_loss(self, logits, values, actions, returns):
        advantages = ops.stop_gradient(returns) - ops.squeeze(values, -1)
        return -ops.mean(ops.take_last(ops.log_softmax(logits), actions) * advantages)

    @graph_fn
    def sum(self, policy_loss, values, returns):
        return policy_loss + ops.mean(ops.square(ops.squeeze(values, -1) - ops.stop_gradient(returns)))


class LiveBaseline(ActorCritic):
    def baseline(self, values):
        return values


class SharedFeatures(ActorCritic):
    """Values and logits have variables in common, which is no fault."""

    def __init__(self):
        super().__init__()
        self.features = Dense(4, "tanh", scope="features")

    @api
    def loss(self, observations, actions, returns):
        features = self.features.call(observations)
        logits, values = self.policy.call(features), self.value.call(features)
        return self.sum(self._policy_loss(logits, self.baseline(values), actions, returns), values, returns)


class TargetsOfThePolicy(Component):
    """Targets of values depend on log-probabilities, and are constants."""

    @graph_fn
    def loss(self, target_log_probs, values, returns):
        targets = ops.stop_gradient(values + ops.exp(target_log_probs) * (returns - values))
        advantages = ops.stop_gradient(returns - values)
        return ops.mean(ops.square(values - targets)) - ops.mean(target_log_probs * advantages)


@pytest.mark.parametrize("component", [ActorCritic, SharedFeatures])
def test_advantages_that_are_constant_pass(component):
    report = check(component, SPACES)
    assert not any(f.cause is Cause.TARGET_HAS_GRADIENT for f in report), str(report)


def test_targets_that_are_made_of_probabilities_pass():
    spaces = {name: FloatBox(-3.0, 0.0, add_batch_rank=True) for name in ("target_log_probs", "values", "returns")}
    report = check(TargetsOfThePolicy, spaces)
    assert report.ok, str(report)


def test_values_that_learn_from_the_policy_are_found():
    (finding,) = (f for f in check(LiveBaseline, SPACES) if f.cause is Cause.TARGET_HAS_GRADIENT)
    assert "by 'values' depends on 'logits'" in finding.seen


def test_a_gradient_that_is_meant_is_declared():
    described = Descriptor("live", LiveBaseline, LiveBaseline, SPACES, with_gradient={"loss": ("values",)})
    assert not any("depends on 'logits'" in finding.seen for finding in check(described))

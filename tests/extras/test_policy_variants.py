"""Variants of a policy act together as each of them does alone."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.components import Policy
from rlweave.errors import SpaceError
from rlweave.extras.policy_variants import PolicyVariants
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import Dict, FloatBox, IntBox

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
OBSERVATIONS = Dict(position=FloatBox(shape=(3,)), kind=IntBox(2))
ACTIONS = Dict(gear=IntBox(3), steer=FloatBox(low=-1.0, high=1.0, shape=(2,)))
MEMBERS = 4


class _Root(Component):
    def __init__(self):
        super().__init__("root")
        self.policy = Policy(
            [{"type": "dense", "units": 5, "activation": "tanh"}], ACTIONS, observation_space=OBSERVATIONS
        )
        self.variants = PolicyVariants(self.policy)

    @api
    def alone(self, observations):
        return self.policy.parameters(observations)

    @api(static=("explore",))
    def act_alone(self, observations, explore=True):
        return self.policy.act(observations, explore=explore)[:2]

    @api
    def log_probs(self, observations, actions):
        return self.policy.log_prob_and_entropy(observations, actions)[0]

    @api
    def assign(self, factors):
        self.variants.assign(self._scaled(factors, self.policy.variables()))

    @graph_fn
    def _scaled(self, factors, variables):
        return {
            path: ops.reshape(factors, (-1,) + (1,) * len(cell.shape)) * cell.value for path, cell in variables.items()
        }

    @api
    def together(self, observations):
        return self.variants.parameters(observations)

    @api(static=("explore",))
    def act_together(self, observations, explore=True):
        return self.variants.act(observations, explore=explore)


def built(backend, members=MEMBERS):
    spaces = {
        "observations": OBSERVATIONS.with_batch_rank(),
        "together.observations": OBSERVATIONS.with_batch_rank(members),
        "act_together.observations": OBSERVATIONS.with_batch_rank(members),
        "actions": ACTIONS.with_batch_rank(),
        "factors": FloatBox(add_batch_rank=members),
    }
    return build(_Root(), spaces, backend=backend, seed=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_members_at_once_are_each_alone(backend):
    executor = built(backend)
    before = executor.get_weights("root/policy")
    # head kernels begin small, and biases at 0
    before = {
        path: value + np.linspace(-1, 1, value.size, dtype=np.float32).reshape(value.shape)
        for path, value in before.items()
    }
    executor.set_weights(before)
    factors = np.array([1.0, -0.5, 2.0, 0.3], np.float32)
    executor.assign(factors)
    observations = OBSERVATIONS.with_batch_rank().sample(MEMBERS, rng=1)
    parameters, (greedy, greedy_log_probs) = (
        executor.together(observations),
        executor.act_together(observations, explore=False),
    )
    drawn, log_probs = executor.act_together(observations, explore=True)
    for path, value in executor.get_weights("root/policy").items():
        np.testing.assert_array_equal(value, before[path])  # the policy itself is as it was
    for member in range(MEMBERS):
        executor.set_weights({path: factors[member] * value for path, value in before.items()})
        mine = {name: value[member : member + 1] for name, value in observations.items()}
        alone, (action, log_prob) = executor.alone(mine), executor.act_alone(mine, explore=False)
        np.testing.assert_allclose(parameters["gear"][member], alone["gear"][0], rtol=1e-4, atol=1e-5)
        for name in ("mean", "log_std"):
            np.testing.assert_allclose(parameters["steer"][name][member], alone["steer"][name][0], rtol=1e-4, atol=1e-5)
        assert greedy["gear"][member] == action["gear"][0]
        np.testing.assert_allclose(greedy["steer"][member], action["steer"][0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(greedy_log_probs[member], log_prob[0], rtol=1e-4, atol=1e-5)
        taken = {name: value[member : member + 1] for name, value in drawn.items()}
        np.testing.assert_allclose(log_probs[member], executor.log_probs(mine, taken)[0], rtol=1e-4, atol=1e-4)


def test_members_have_a_number():
    with pytest.raises(SpaceError, match="B"):
        built("numpy", members=True)

"""The graph that actor-critic agents share: rollouts of one step, values that fit, acting."""

import numpy as np
import pytest

from rlweave.agents.a2c import A2C
from rlweave.agents.actor_critic_graph import ActorCritic
from rlweave.agents.fused_ppo import FusedPPO
from rlweave.components import Policy, ValueFunction
from rlweave.envs.in_graph import CartPole
from rlweave.graph import Component, api
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.agents.rollouts import SMALL, rollout


def made(rollout_steps=6, backend="torch", **settings):
    config = {"network": SMALL, "rollout_steps": rollout_steps, **settings}
    return A2C(FloatBox(shape=(3,)), IntBox(3), config, num_envs=4, backend=backend, seed=3)


@pytest.mark.parametrize("ended", [False, True])
def test_rollouts_of_one_step(ended):
    agent = made(1, discount=0.9, gae_lambda=0.8)
    batch = rollout(agent)
    batch |= {"terminated": np.full((1, 4), ended), "truncated": np.zeros((1, 4), bool)}
    after = agent.postprocess({**batch, "observations": batch["next_observations"]})["values"]
    rows = agent.postprocess(batch)
    expected = batch["rewards"][0] + (0.0 if ended else 0.9 * after)
    np.testing.assert_allclose(rows["value_targets"], expected, rtol=1e-5, atol=1e-6)


def test_without_a_cut_the_next_values_are_those_of_the_next_row():
    agent = made(6, discount=0.9, gae_lambda=0.0)
    batch = rollout(agent)
    batch["next_observations"][:-1] = batch["observations"][1:]
    batch |= {"terminated": np.zeros((6, 4), bool), "truncated": np.zeros((6, 4), bool)}
    values = agent.postprocess(batch)["values"].reshape(6, 4)
    last = agent.postprocess({**batch, "observations": batch["next_observations"]})["values"].reshape(6, 4)[-1:]
    targets = agent.postprocess(batch)["value_targets"].reshape(6, 4)
    expected = batch["rewards"] + 0.9 * np.concatenate([values[1:], last])
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)
    # a cut: what the step led to is not what the next row begins with
    batch["next_observations"][2, 1] += 1.0
    batch["truncated"][2, 1] = True
    cut = agent.postprocess(batch)["value_targets"].reshape(6, 4)
    moved = np.argwhere(~np.isclose(cut, targets, rtol=1e-5, atol=1e-6))
    np.testing.assert_array_equal(moved, [[2, 1]])


def test_where_all_targets_are_equal_nothing_is_explained():
    agent = made(4)
    batch = rollout(agent)
    batch |= {"rewards": np.zeros((4, 4), np.float32), "terminated": np.ones((4, 4), bool)}
    metrics = agent.update(batch)
    assert metrics["explained_variance"] == 0.0


def test_acting_draws_unless_it_is_told_not_to():
    agent = made(backend="numpy")
    alike = np.zeros((500, 3), np.float32)
    assert len(np.unique(agent.executor.act(alike)[0])) == 3
    assert len(np.unique(agent.executor.act(alike, explore=False)[0])) == 1


def test_training_on_ones_own_environments_is_one_iteration_unless_more_are_asked_for():
    settings = {"rollout_steps": 4, "epochs": 1, "minibatches": 1, "network": SMALL}
    agents = [FusedPPO(CartPole(2, 5), settings, backend="torch", seed=0).build({"rng": "portable"}) for _ in range(2)]
    agents[0].executor.train()
    agents[1].executor.train(iterations=1)
    one, other = (agent.executor.get_weights() for agent in agents)
    for path, value in one.items():
        np.testing.assert_array_equal(value, other[path], err_msg=path)


class Both(Component):
    """Owns a policy and a value function, and acts with them."""

    def __init__(self):
        super().__init__("root")
        layers = [{"type": "dense", "units": 4}]
        self.policy, self.value_function = Policy(layers, IntBox(3)), ValueFunction(layers)
        self.acting = ActorCritic(self.policy, self.value_function)

    @api
    def act(self, observations):
        return self.acting.act(observations)[0]

    @api
    def act_greedily(self, observations):
        return self.acting.act(observations, explore=False)[0]


def test_policy_and_value_function_act_by_drawing_unless_they_are_told_not_to():
    test = ComponentTest(Both(), {"observations": FloatBox(shape=(3,), add_batch_rank=True)})
    alike = np.zeros((500, 3), np.float32)
    assert len(np.unique(test.test("act", alike))) == 3
    assert len(np.unique(test.test("act_greedily", alike))) == 1

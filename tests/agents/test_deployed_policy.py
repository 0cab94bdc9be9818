"""A policy as it is exported: what it gives, where integers begin, what it carries, and how it explores."""

import numpy as np
import pytest

from rlweave.agents.deployed_policy import build_deployed
from rlweave.agents.dqn import DQN
from rlweave.agents.ppo import PPO
from rlweave.spaces import Dict, FloatBox, IntBox
from tests.agents.rollouts import SMALL

SPACE = Dict(kind=IntBox(4), other=IntBox(3), place=FloatBox(shape=(2,)))
ACTIONS = Dict(gear=IntBox(3), switch=IntBox(2))
GRU = [{"type": "gru", "units": 4}]


def deployed(agent, **options):
    agent.build({"methods": agent.acting_methods, "static": {}})
    return build_deployed(agent, agent.model().weights, "numpy", **options)


def dqn(network=SMALL, actions=ACTIONS):
    return DQN(SPACE, actions, {"network": network}, backend="numpy", seed=1)


def sampled(rows=40):
    return SPACE.with_batch_rank().sample(rows, rng=np.random.default_rng(0))


def test_it_gives_the_action_and_what_it_is_chosen_by():
    agent, x = dqn(), sampled()
    found = deployed(agent).act(x)
    assert set(found) == {"action", "parameters"}
    q_values = agent.executor.q_values(x)[0]
    for name in ("gear", "switch"):
        np.testing.assert_allclose(found["parameters"][name], q_values[name], rtol=1e-5)
        np.testing.assert_array_equal(found["action"][name], q_values[name].argmax(-1))


def test_integers_are_counted_from_where_they_begin():
    agent, x = dqn(), sampled()
    plain = deployed(agent).act(x)
    there = deployed(agent, observation_starts={"kind": 5}, action_starts={"gear": -1}).act(
        {**x, "kind": x["kind"] + 5}
    )
    np.testing.assert_array_equal(there["parameters"]["gear"], plain["parameters"]["gear"])
    np.testing.assert_array_equal(there["action"]["gear"], plain["action"]["gear"] - 1)
    np.testing.assert_array_equal(there["action"]["switch"], plain["action"]["switch"])


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_a_recurrent_policy_gives_its_state_on(kind):
    agent = kind(SPACE, IntBox(3), {"network": GRU, **({} if kind is DQN else {"minibatches": 1})}, backend="numpy")
    policy, x, start = deployed(agent), sampled(3), np.array([False, True, False])
    half, zero = (({"hidden": np.full((3, 4), number, np.float32)},) for number in (0.5, 0.0))
    found = policy.act(x, half, start)
    assert set(found) == {"action", "parameters", "next_recurrent_state"}
    after, no = found["next_recurrent_state"][0]["hidden"], np.zeros(3, bool)
    going_on = policy.act(x, half, no)["next_recurrent_state"][0]["hidden"]
    fresh = policy.act(x, zero, no)["next_recurrent_state"][0]["hidden"]
    # the second row began an episode, the others went on from the state
    np.testing.assert_allclose(after, np.where(start[:, None], fresh, going_on), rtol=1e-5)
    assert not np.allclose(going_on, fresh)


def test_it_plays_greedily_unless_it_is_told_to_explore():
    agent, x = dqn(), sampled(200)
    greedy, policy = deployed(agent).act(x)["action"], deployed(agent, plays=True)
    for options in ({"epsilon": 1.0}, {"epsilon": 0.0, "explores": True}):
        played, _ = policy.play(x, **options)
        for name, action in greedy.items():
            np.testing.assert_array_equal(played[name], action)
    played, _ = policy.play(x, epsilon=1.0, explores=True)
    assert not np.array_equal(played["gear"], greedy["gear"])

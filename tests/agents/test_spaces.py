"""Agents in loops of one's own: what is kept between calls, and what is given back."""

import numpy as np
import pytest

from rlweave.agents import DQN
from rlweave.errors import ExecutionError
from rlweave.spaces import FloatBox, IntBox
from rlweave.tree import tree_leaves as leaves


def test_steps_that_were_on_their_way_are_forgotten_with_a_load_and_with_new_episodes():
    config = {"network": [{"type": "dense", "units": 4}], "learning_starts": 2, "batch_size": 2, "memory_capacity": 50}
    rng = np.random.default_rng(0)
    agents = []
    for abandoned in (False, True):
        agent = DQN(FloatBox(shape=(3,)), IntBox(2), {**config, "n_step": 2}, backend="torch", seed=2)
        rng = np.random.default_rng(0)
        for _ in range(4):
            agent.observe(rng.normal(size=3), 0, 1.0, False, False, rng.normal(size=3))
        state, counters = agent.state_dict(), agent.counters()
        if abandoned:
            agent.observe(np.full(3, 7.0), 1, 100.0, False, False)
        agent.load_state_dict(state)
        agent.load_counters(counters)
        if abandoned:
            agent.observe(np.full(3, 7.0), 1, 100.0, False, False)
            agent.begin_episodes()
            agent.load_counters(counters)
        for _ in range(3):
            agent.observe(rng.normal(size=3), 0, 1.0, False, False, rng.normal(size=3))
        agents.append(agent)
    assert agents[0].counters() == agents[1].counters()
    for (name, one), other in zip(agents[0].state_dict().items(), agents[1].state_dict().values(), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("config", [{"network": [{"type": "lstm", "units": 3}]}, {"network": []}], ids=["lstm", "none"])
def test_acting_without_a_state_begins_episodes(config):
    agent = DQN(FloatBox(shape=(3,)), IntBox(2), config, backend="torch", seed=2)
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    actions, _, after = agent.act(observations, explore=False)
    first = agent.act(observations, agent.initial_state(4), np.ones(4, np.bool_), explore=False)
    np.testing.assert_array_equal(actions, first[0])
    assert all(np.array_equal(*pair) for pair in zip(leaves(after), leaves(first[2]), strict=True))
    given = agent.act(observations, after, np.zeros(4, np.bool_), explore=False)[2]
    assert all(
        np.array_equal(*pair)
        for pair in zip(leaves(agent.act(observations, after, explore=False)[2]), leaves(given), strict=True)
    )


def test_rewards_and_ends_are_one_number_and_one_bool():
    agent = DQN(FloatBox(shape=(3,)), IntBox(2), {"network": []}, backend="torch")
    zeros = np.zeros(3)
    agent.observe(zeros, 0, np.array([1.0]), np.array([False]), np.bool_(True), zeros)
    assert agent.inserted == 1
    for reward, terminated, words in (
        ([1.0, 2.0], False, "one number"),
        ("1", False, "one number"),
        (np.nan, False, "not finite"),
        (1.0, [True, False], "one bool each"),
        (1.0, 0.5, "one bool each"),
    ):
        with pytest.raises(ExecutionError, match=words):
            agent.observe(zeros, 0, reward, terminated, False, zeros)
    assert agent.inserted == 1

"""Our environment with several agents: four cart-poles that know nothing of each other."""

import gymnasium
import numpy as np
import pytest

from rlweave.envs.multi_cartpole import MultiCartPole
from rlweave.errors import ConfigError, EnvError


def test_it_passes_the_test_of_petting_zoo():
    pettingzoo_test = pytest.importorskip("pettingzoo.test")
    pettingzoo_test.parallel_api_test(MultiCartPole(), num_cycles=1000)  # warnings are errors here
    pettingzoo_test.parallel_api_test(MultiCartPole(num_agents=1, max_episode_steps=7), num_cycles=100)


def test_each_agent_is_a_cart_pole_of_gymnasium():
    env = MultiCartPole(num_agents=3)
    seeds = np.random.SeedSequence(9).generate_state(3, np.uint32).tolist()
    poles = {agent: gymnasium.make("CartPole-v1") for agent in env.possible_agents}
    random = np.random.default_rng(1)
    for seed in (9, None):  # the second episode goes on with the poles' own random streams
        observations, _ = env.reset(seed=seed)
        own = seeds if seed is not None else [None] * 3
        for (agent, pole), pole_seed in zip(poles.items(), own, strict=True):
            np.testing.assert_array_equal(observations[agent], pole.reset(seed=pole_seed)[0])
        lengths = dict.fromkeys(env.agents, 0)
        while env.agents:
            actions = {agent: int(random.integers(2)) for agent in env.agents}
            there = list(env.agents)
            observations, rewards, terminated, truncated, infos = env.step(actions)
            assert list(observations) == list(rewards) == list(infos) == there
            for agent in there:
                expected, reward, ended, cut, _ = poles[agent].step(actions[agent])
                np.testing.assert_array_equal(observations[agent], expected)
                assert (rewards[agent], terminated[agent], truncated[agent]) == (reward, ended, cut)
                assert (agent in env.agents) == (not ended)
                lengths[agent] += 1
        assert len(set(lengths.values())) > 1  # they ended each by itself


def test_an_agent_is_truncated_at_the_limit():
    env = MultiCartPole(num_agents=2, max_episode_steps=3)
    env.reset(seed=0)
    for _ in range(3):
        _, _, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 1))
    assert truncated == {"cart_0": True, "cart_1": True}
    assert not any(terminated.values())
    assert env.agents == []


def test_same_seed_same_episode_and_agents_differ():
    first, second = MultiCartPole(), MultiCartPole()
    a, b = first.reset(seed=3)[0], second.reset(seed=3)[0]
    np.testing.assert_equal(a, b)
    assert len({tuple(observation) for observation in a.values()}) == 4
    assert not np.array_equal(a["cart_0"], first.reset()[0]["cart_0"])


def test_wrong_use_is_explained():
    with pytest.raises(ConfigError):
        MultiCartPole(num_agents=0)
    env = MultiCartPole()
    env.reset(seed=0)
    with pytest.raises(EnvError, match="'cart_1' is there and got no action"):
        env.step({"cart_0": 0})

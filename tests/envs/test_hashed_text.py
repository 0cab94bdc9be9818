"""Environments with text: hashed one by one, in every kind of vector environment; an agent learns from it."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlweave.agents.ppo import PPO
from rlweave.components import hash_text
from rlweave.envs import TextHashing, make_env
from rlweave.errors import ConfigError, EnvError, SpaceError
from rlweave.spaces import Dict, FloatBox, IntBox, Space
from rlweave.spaces.gymnasium_spaces import from_gymnasium, to_gymnasium

HASHING = TextHashing(tokens=3, buckets=64)
NUMBERS = spaces.Tuple([spaces.Box(0, 1, (2,))])
ORDERS = ("go left now", "go right", "stay")


class Instructions(gymnasium.Env):
    """One step: the reward is 1 for doing what the text says."""

    def __init__(self, broken=False):
        text = spaces.Text(20, charset="abcdefghijklmnopqrstuvwxyz ")
        self.observation_space = spaces.Dict({"order": text, "x": NUMBERS})
        self.action_space = spaces.Discrete(3)
        self.broken = broken

    def _observe(self):
        self.wanted = int(self.np_random.integers(3))
        order = 7 if self.broken else ORDERS[self.wanted]
        return {"order": order, "x": (np.full(2, 0.5, np.float32),)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        reward = float(action == self.wanted)
        return self._observe(), reward, True, False, {}


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_text_becomes_numbers_at_the_boundary(vectorization):
    with make_env(Instructions, 3, vectorization, seed=0, text=HASHING) as env:
        tokens = IntBox(64, shape=(3,), layout="tokens")
        assert env.observation_space == Dict(order=tokens, x=from_gymnasium(NUMBERS))
        known = {tuple(hash_text(order, *HASHING)) for order in ORDERS}
        seen = {tuple(row) for row in env.reset()["order"]}
        for _ in range(5):
            result = env.step(np.zeros(3, np.int32))
            seen |= {tuple(row) for row in result.next_observations["order"]}
            assert result.next_observations["order"].dtype == np.int32
    assert seen == known


def test_without_a_setting_text_stays_text():
    with make_env(Instructions, 2, seed=0) as env:
        assert env.reset()["order"].dtype == object


def test_an_environment_without_text_is_left_alone():
    with make_env("CartPole-v1", 2, seed=0, text=HASHING) as env:
        assert env.observation_space == FloatBox(
            low=env.gym_observation_space.low, high=env.gym_observation_space.high, shape=(4,)
        )


def test_what_is_no_text_is_explained():
    with pytest.raises(EnvError, match="order"), make_env(lambda: Instructions(broken=True), 2, text=HASHING) as env:
        env.reset()
    with pytest.raises((EnvError, SpaceError), match="tokens must be a whole number"):
        make_env(Instructions, 1, text=TextHashing(0, 5))
    vector = gymnasium.vector.SyncVectorEnv([Instructions])
    with pytest.raises(ConfigError, match="one environment at a time"):
        make_env(vector, text=HASHING)


def test_spaces_of_numbers_of_words_round_trip():
    space = Dict(order=IntBox(64, shape=(3,), layout="tokens"))
    assert from_gymnasium(to_gymnasium(space)) == space
    assert Space.from_json(space.to_json()) == space
    with pytest.raises(SpaceError, match="along one feature axis"):
        IntBox(4, shape=(2, 2), layout="tokens")
    with pytest.raises(SpaceError, match="along one feature axis"):
        FloatBox(shape=(2,), layout="tokens")


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_an_agent_learns_to_follow_text(backend):
    with make_env(Instructions, 8, seed=0, text=HASHING) as env:
        config = {"rollout_steps": 8, "minibatches": 1, "lr": 0.01, "network": [], "acting_backend": "numpy"}
        agent = PPO(env.observation_space, env.action_space, config, num_envs=8, backend=backend, seed=0)
        agent.build()
        observations = env.reset()
        for step in range(8 * 30):
            actions = agent.get_actions(observations, env_ids=range(8))
            result = env.step(actions)
            for i in range(8):
                row = [{"order": s["order"][i], "x": (s["x"][0][i],)} for s in (observations, result.next_observations)]
                agent.observe(row[0], actions[i], result.rewards[i], result.terminated[i], False, row[1], env_id=i)
            observations = result.observations
            if step % 8 == 7:
                agent.update()
        rewards = [env.step(agent.get_actions(env.reset(), explore=False)).rewards for _ in range(5)]
    assert np.mean(rewards) == 1.0

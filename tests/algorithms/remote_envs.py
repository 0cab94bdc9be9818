"""Environments for workers in other processes: they fail at a given step, or reward only the last one."""

import os
import threading
import time

import gymnasium
import numpy as np

FAULTY = "tests.algorithms.remote_envs:rlweave-tests/Faulty-v0"
LAST_REWARD = "tests.algorithms.remote_envs:rlweave-tests/LastReward-v0"


class Faulty(gymnasium.Env):
    """Steps of nothing, one of which fails.

    Args:
        how: "raises", "exits", "hangs", or "info": an info that cannot be pickled.
        at: Number of the step, counted over all episodes of this object.
        every: Whether each multiple of it fails.
    """

    def __init__(self, how="", at=3, every=False):
        self.how, self.at, self.every = how, at, every
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        info = {}
        if self.steps == self.at or (self.every and self.steps % self.at == 0):
            if self.how == "raises":
                raise ZeroDivisionError(f"broke at step {self.steps}")
            if self.how == "exits":
                os._exit(3)
            if self.how == "hangs":
                time.sleep(600)
            if self.how == "info":
                info = {"lock": threading.Lock()}
        return np.full(2, 0.1, np.float32), 1.0, self.steps % 8 == 0, False, info


class LastReward(gymnasium.Env):
    """Episodes of four steps; the observation is the number of the step, and only the last one is rewarded."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0.0, 4.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.at += 1
        return np.array([self.at], np.float32), float(self.at == 4), self.at == 4, False, {}


for _id, _class in (("rlweave-tests/Faulty-v0", Faulty), ("rlweave-tests/LastReward-v0", LastReward)):
    if _id not in gymnasium.registry:
        gymnasium.register(_id, _class)

"""The workers of `flow_items.py`: they act in CartPole, by a policy of one number."""

from __future__ import annotations

import os
import time

import gymnasium
import numpy as np


class Batch(dict):
    """A fragment, of a type that none of the three knows anything of."""

    @property
    def num_steps(self):
        """Environment steps."""
        return len(self["rewards"])


class Worker:
    """Acts in CartPole by a policy of one number."""

    def __init__(self, steps):
        self.steps, self.weight = steps, 0.1
        self.env = gymnasium.make("CartPole-v1")
        self.observation, _ = self.env.reset(seed=0)

    def sample(self):
        """One fragment."""
        observations = np.empty((self.steps, 4), np.float32)
        rewards = np.empty(self.steps, np.float32)
        for step in range(self.steps):
            observations[step] = self.observation
            action = int(self.weight * self.observation[2] > 0)
            self.observation, rewards[step], terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:
                self.observation, _ = self.env.reset()
        return Batch(observations=observations, rewards=rewards)

    def set_weights(self, weights, version):
        """Takes the number."""
        self.weight = weights

    def episode_stats(self):
        """None are counted, by any of the three."""
        return ()


class BusyWithNothing(Worker):
    """Delivers one item, and then sleeps."""

    def sample(self):
        """Sleeps."""
        time.sleep(3600)

    def pid(self):
        """Its process."""
        return os.getpid()

"""Environments with several agents whose every step is written down beforehand."""

import gymnasium
import numpy as np

SPACE = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(5)


class Scripted:
    """Plays episodes that are written down.

    Args:
        agents: All agents there can be.
        episodes: Each a list: first the observations at the reset, {agent: number}; then a dict for each step,
            {agent: (observation or None, reward, flags)}, where flags have "T" for terminated and "C" for truncated.
            An agent without an observation is not asked. An agent comes where it is first named, and is gone after a
            flag. The episode is over after its last step. Episodes repeat.
    """

    def __init__(self, agents, episodes):
        self.possible_agents, self.episodes = list(agents), episodes
        self.agents = []
        self.given = []  # the actions of each step
        self.seeds = []
        self.closed = False
        self._episode = -1

    def observation_space(self, agent):
        return SPACE

    def action_space(self, agent):
        return ACTIONS

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self._episode += 1
        self._steps = list(self.episodes[self._episode % len(self.episodes)])
        first = self._steps.pop(0)
        self.agents, self._gone = list(first), set()
        asked = {agent: value for agent, value in first.items() if value is not None}
        return {agent: np.float32([value]) for agent, value in asked.items()}, {agent: {} for agent in asked}

    def step(self, actions):
        self.given.append(dict(actions))
        happened = self._steps.pop(0)
        observations = {a: np.float32([seen]) for a, (seen, _, _) in happened.items() if seen is not None}
        rewards = {a: reward for a, (_, reward, _) in happened.items()}
        terminated = {a: "T" in flags for a, (_, _, flags) in happened.items()}
        truncated = {a: "C" in flags for a, (_, _, flags) in happened.items()}
        ended = {a for a, (_, _, flags) in happened.items() if flags}
        self.agents += [a for a in happened if a not in self.agents and a not in self._gone]
        self._gone |= ended
        self.agents = [a for a in self.agents if not (terminated.get(a) or truncated.get(a))]
        if not self._steps:
            self.agents = []
        return observations, rewards, terminated, truncated, {}

    def close(self):
        self.closed = True


def together(agents):
    """All agents in one group."""
    return {"all": list(agents)}


def apart(agents):
    """A group for each agent."""
    return {agent: [agent] for agent in agents}

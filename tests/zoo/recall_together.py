"""Several agents, each with a task that needs memory, mask and several leaves, and each at a pace of its own."""

import numpy as np

from rlweave.envs import MaskedRecall

LENGTHS = 5, 3, 2


class RecallTogether:
    """Agents that play `MaskedRecall`; agent i is asked in every (i + 1)-th joint step, and leaves when its own ends.

    An action that is not allowed is a fault.
    """

    possible_agents = ["quick", "calm", "slow"]

    def __init__(self):
        self._envs = {agent: MaskedRecall(length) for agent, length in zip(self.possible_agents, LENGTHS, strict=True)}
        self.agents = []

    def observation_space(self, agent):
        return self._envs[agent].observation_space

    def action_space(self, agent):
        return self._envs[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents, self._steps = list(self.possible_agents), 0
        seeds = [None] * 3 if seed is None else np.random.SeedSequence(seed).generate_state(3).tolist()
        self._seen = {
            agent: env.reset(seed=own)[0] for (agent, env), own in zip(self._envs.items(), seeds, strict=True)
        }
        return dict(self._seen), {agent: {} for agent in self.agents}

    def step(self, actions):
        self._steps += 1
        observations, rewards, ended = {}, {}, {}
        for agent in self.agents:
            rewards[agent], ended[agent] = 0.0, False
            if agent in actions:
                assert self._seen[agent]["action_mask"][actions[agent]], f"{agent} took an action that is not allowed"
                self._seen[agent], rewards[agent], ended[agent], _, _ = self._envs[agent].step(actions[agent])
            if ended[agent] or self._steps % (self.possible_agents.index(agent) + 1) == 0:
                observations[agent] = self._seen[agent]
        there, self.agents = self.agents, [agent for agent in self.agents if not ended[agent]]
        return observations, rewards, ended, dict.fromkeys(there, False), {agent: {} for agent in there}

    def close(self):
        pass

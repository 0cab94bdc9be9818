"""Environments with PettingZoo's parallel API, for the checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlweave.envs.parallel_api import first_observations, five_mappings
from rlweave.testing.checks.environments.players import Drawing, Outcome, Part, Player, calling, usable_mask


class ParallelPlayer(Player):
    """An environment with several agents: an outcome holds mappings by agent.

    Args:
        env: The environment.
    """

    def reset(self, seed: int | None) -> Outcome:
        with calling("reset"):
            result = self.env.reset(seed=seed)
            return Outcome(dict(first_observations(result)), dict(result[1]))

    def step(self, action: Any) -> Outcome:
        with calling("step"):
            observations, rewards, terminated, truncated, infos = five_mappings(self.env.step(action))
            return Outcome(dict(observations), dict(infos), dict(rewards), dict(terminated), dict(truncated))

    def parts(self, outcome: Outcome) -> Iterator[Part]:
        for agent, observation in outcome.observation.items():
            own = Outcome(observation, (outcome.info or {}).get(agent, {}))
            if outcome.reward is not None:
                own.reward = outcome.reward.get(agent)
                own.terminated = (outcome.terminated or {}).get(agent)
                own.truncated = (outcome.truncated or {}).get(agent)
            with calling("observation_space"):
                yield Part(agent, own, self.env.observation_space(agent), self.env.action_space(agent))

    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        draw.next_step()
        actions = {}
        for agent in self.env.agents:
            space = self.env.action_space(agent)
            own = Outcome(outcome.observation.get(agent), (outcome.info or {}).get(agent, {}))
            actions[agent] = draw.action(agent, space, usable_mask(own, space))
        return actions

    def ended(self, outcome: Outcome) -> bool:
        return not self.env.agents

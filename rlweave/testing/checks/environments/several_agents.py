"""Environments with PettingZoo's parallel API, for the checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlweave.envs.parallel_api import first_observations, five_mappings
from rlweave.testing.checks.environments.inspection import Inspection, place_of
from rlweave.testing.checks.environments.players import Drawing, Outcome, Part, Player, calling, is_true, usable_mask
from rlweave.testing.checks.findings import Cause


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


def check_agents(inspection: Inspection) -> None:
    """Checks who is there: agents that ended are gone, and who is there gets an observation, a reward and flags."""
    check = "agents come and go"
    with inspection.check(check):
        _check_spaces(inspection)
        gone: set[str] = set()
        for number, event in enumerate(inspection.events):
            outcome = event.outcome
            if event.is_reset:
                gone = set()
                continue
            place = place_of(inspection.events, number)
            ended = {
                agent
                for agent in outcome.observation
                if is_true(outcome.terminated.get(agent)) or is_true(outcome.truncated.get(agent))
            }
            for name in ("reward", "terminated", "truncated"):
                missing = [agent for agent in event.action if agent not in getattr(outcome, name)]
                if missing:
                    seen = f"{place}: agent {missing[0]!r} took an action, and there is no {name} of it"
                    inspection.note(check, Cause.BAD_ENDS, seen, f"return {name} of all who acted", key=name)
            again = gone & event.action.keys()
            if again:
                inspection.note(
                    check,
                    Cause.BAD_ENDS,
                    f"{place}: agent {min(again)!r} ended before, and is still in env.agents",
                    "take who is terminated or truncated out of self.agents in the same step",
                )
            gone |= ended
        if not any(event.is_reset for event in inspection.events[1:]):
            inspection.advise(
                "episodes end",
                f"no episode ended within {len(inspection.events) - 1} random steps",
                "truncate all agents after a number of steps, unless it is meant to go on for ever",
            )


def _check_spaces(inspection: Inspection) -> None:
    """The parallel API promises the same space object at each call."""
    player = inspection.subject.make()
    for agent in inspection.events[0].outcome.observation:
        for name in ("observation_space", "action_space"):
            with calling(name):
                first, second = (getattr(player.env, name)(agent) for _ in range(2))
            if first is not second:
                inspection.note(
                    "spaces are kept",
                    Cause.SEED_IGNORED,
                    f"{name}({agent!r}) makes a new space at each call, so a seed that it is given is lost",
                    "make the spaces in __init__, and return those",
                    key=name,
                )
    if inspection.subject.repeats:
        player.close()

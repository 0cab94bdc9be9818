"""Which policy plays which agent of an environment."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from rlweave.errors import ConfigError, nearest

MappingRule = Mapping[str, str] | Callable[[str], str]
"""Patterns of agent names to policy names, of which the last match counts; or a function from agent to policy."""


class PolicyMapping:
    """Sorts the agents of an environment by the policy that plays them.

    Args:
        rule: Patterns as the shell has them (``{"*": "others", "walker_*": "walkers"}``), or a function.
        policies: Names of the policies.

    >>> PolicyMapping({"cart_*": "rest", "cart_0": "first"}, ["first", "rest"])(["cart_0", "cart_1", "cart_2"])
    {'first': ['cart_0'], 'rest': ['cart_1', 'cart_2']}
    """

    def __init__(self, rule: MappingRule, policies: Sequence[str]) -> None:
        self.rule, self.policies = rule, list(policies)

    def policy_of(self, agent: str) -> str:
        """The policy that plays an agent.

        Raises:
            ConfigError: If none does, or it is none of the policies.
        """
        if isinstance(self.rule, Mapping):
            fitting = [name for pattern, name in self.rule.items() if fnmatch.fnmatchcase(agent, pattern)]
            if not fitting:
                raise ConfigError(
                    f"no policy plays agent {agent!r}",
                    where="mapping",
                    received=f"patterns {list(self.rule)}",
                    fix="add its name, or a first pattern '*'",
                )
            found = fitting[-1]
        else:
            found = self.rule(agent)
        if found not in self.policies:
            raise ConfigError(
                f"agent {agent!r} is to be played by a policy that does not exist",
                where="mapping",
                received=repr(found),
                fix=nearest(str(found), self.policies),
            )
        return found

    def __call__(self, agents: Sequence[str]) -> dict[str, list[str]]:
        """The agents of each policy, in the order of both.

        Raises:
            ConfigError: If an agent has no policy, or a policy no agent.
        """
        grouped: dict[str, list[str]] = {policy: [] for policy in self.policies}
        for agent in agents:
            grouped[self.policy_of(agent)].append(agent)
        for policy, members in grouped.items():
            if not members:
                raise ConfigError(
                    f"policy {policy!r} plays no agent",
                    where="mapping",
                    received=f"agents {list(agents)}",
                    fix="map one of them to it, or leave the policy out (with --no-presets, a tuned one)",
                )
        return grouped

"""What PettingZoo's parallel API returns, taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.envs.contract import plain_flag, plain_reward
from rlweave.errors import EnvError


def five_mappings(result: Any) -> tuple[Mapping[str, Any], ...]:
    """Observations, rewards, terminated, truncated and infos of a step.

    Raises:
        EnvError: It has not the form of the parallel API.
    """
    if not isinstance(result, tuple) or len(result) != 5 or not all(isinstance(part, Mapping) for part in result):
        raise EnvError(
            "step() must return five mappings by agent",
            received=f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, tuple) else ""),
            fix="return observations, rewards, terminations, truncations, infos",
        )
    return result


def first_observations(result: Any) -> Mapping[str, Any]:
    """Observations of a reset.

    Raises:
        EnvError: It has not the form of the parallel API.
    """
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Mapping):
        raise EnvError(
            "reset() must return two mappings by agent",
            received=f"a {type(result).__name__}",
            fix="return observations, infos",
        )
    observations: Mapping[str, Any] = result[0]
    return observations


def reward_of(agent: str, reward: Any) -> float:
    """An agent's reward as a number.

    Raises:
        EnvError: It is none; names the agent.
    """
    try:
        return plain_reward(reward)
    except EnvError as error:
        raise EnvError(f"agent {agent!r}: {error.what}", received=error.received, fix=error.fix) from None


def flag_of(agent: str, name: str, value: Any) -> bool:
    """An agent's flag, "terminated" or "truncated", as a bool.

    Raises:
        EnvError: It is none; names the agent.
    """
    try:
        return plain_flag(name, value)
    except EnvError as error:
        raise EnvError(f"agent {agent!r}: {error.what}", received=error.received, fix=error.fix) from None

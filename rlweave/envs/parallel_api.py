"""PettingZoo's parallel API: environments by name, and checks of what they return."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rlweave.envs.contract import plain_flag, plain_reward, refuse_running_statistics
from rlweave.envs.multi_cartpole import MultiCartPole
from rlweave.errors import EnvError, install_command, nearest
from rlweave.plugins import import_named

MULTI_CARTPOLE_ID = "rlweave/MultiCartPole-v0"

ParallelEnv = Any
"""An environment with PettingZoo's parallel API: `possible_agents`, `agents`, `reset`, `step`, spaces by agent."""

OWN: dict[str, Callable[..., ParallelEnv]] = {MULTI_CARTPOLE_ID: MultiCartPole}
_PETTING_ZOO = re.compile(r"(pettingzoo|mpe2)\b")


def resolve_parallel(name: str) -> Callable[..., ParallelEnv]:
    """Finds the function that makes an environment with several agents.

    Args:
        name: One of rlweave's own (``"rlweave/MultiCartPole-v0"``); a module with a function ``parallel_env``, as
            PettingZoo's have (``"mpe2.simple_spread_v3"``); or ``"module:function"``.

    Returns:
        A function of the environment's keyword arguments.

    Raises:
        EnvError: If there is no such module or function.

    >>> resolve_parallel("rlweave/MultiCartPole-v0")(num_agents=2).possible_agents
    ['cart_0', 'cart_1']
    """
    if name in OWN:
        return OWN[name]
    module_name, colon, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise EnvError(
            "no environment with several agents has this name",
            received=repr(name),
            fix=f"{nearest(name, list(OWN))}; or name a module of PettingZoo's kind ('mpe2.simple_spread_v3'), or "
            "'module:function'",
        )
    what = "the module of an environment with several agents"
    fix = install_command("multiagent") if _PETTING_ZOO.match(name) else "install it, or correct the name"
    module = import_named(module_name, EnvError, what, received=repr(name), fix=fix)
    factory = getattr(module, attribute or "parallel_env", None)
    if not callable(factory):
        functions = [known for known in dir(module) if not known.startswith("_")]
        raise EnvError(
            f"the module {module_name!r} has no {attribute or 'parallel_env'!r}",
            received=repr(name),
            fix=nearest(attribute, functions) if colon else "write 'module:function'",
        )
    made: Callable[..., ParallelEnv] = factory
    return made


def make_parallel_env(name: str, options: Mapping[str, Any] | None = None) -> ParallelEnv:
    """Makes an environment of a training by its name (a function of a module, so that it travels to other processes).

    Raises:
        EnvError: There is none of this name, or it has a wrapper that keeps running statistics.
    """
    env = resolve_parallel(name)(**(options or {}))
    refuse_running_statistics(env)
    return env


def five_mappings(result: Any) -> tuple[Mapping[str, Any], ...]:
    """Observations, rewards, terminated, truncated and infos of a step.

    Raises:
        EnvError: It has another form than the parallel API's.
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
        EnvError: It has another form than the parallel API's.
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

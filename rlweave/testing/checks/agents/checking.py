"""`check_agent`: all checks of one agent in one environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.envs.registration import EnvSpec

from rlweave.agents.agent import Agent
from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.environments import making_options
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.schedule_lengths import fill_schedules
from rlweave.envs import VectorEnv, make_env
from rlweave.errors import ConfigError
from rlweave.testing.checks.agents.laws import LAWS
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.agents.trial import ENVIRONMENTS, FIXED, SMALL, Trial, learning_backend
from rlweave.testing.checks.batch_size import batch_size
from rlweave.testing.checks.checking import CHECKS, run_checks
from rlweave.testing.checks.findings import Report
from rlweave.testing.checks.inputs import unused_inputs, unused_variables
from rlweave.testing.checks.parity import modes_agree, state_is_complete
from rlweave.testing.checks.randomness import draws_count

#: Checks that are not made of the graph of an agent. Some ask what inputs, variables and draws matter for:
#: in a training some do not (epsilon is 1 at first), and the laws of agents say which have to. Others sample inputs, or
#: take some of the rows, and a law of agents asks the same of a training.
OF_COMPONENTS = (unused_inputs, unused_variables, draws_count, modes_agree, state_is_complete, batch_size)
OF_GRAPHS = tuple(check for check in CHECKS if check not in OF_COMPONENTS)


def check_agent(
    agent: str | type[Agent],
    env: Any,
    settings: Mapping[str, Any] | None = None,
    backend: str | None = None,
    functions: bool = True,
) -> Report:
    """Checks an agent: each graph function of its graph in a short training, and what it does as a whole.

    The agent is small: short rollouts, a small batch and memory, its networks as they are set. It acts on the graph
    that learns, whatever its `acting_backend` is.

    Args:
        agent: Name of an algorithm; or a class of agents.
        env: What `make_env` takes: an id, a function.
        settings: Of the algorithm by dotted name (`"agent.lr"`); of a class, those of its `config_class`.
        backend: Where it learns; None: torch, or else the one that is installed.
        functions: Whether the graph functions are checked, too, which takes the most of the time.

    Raises:
        ConfigError: There is no such algorithm or setting, or the algorithm has no single agent.
    """
    _refuse(agent, env, settings)
    learns_on = learning_backend(backend)
    if isinstance(agent, str):
        return _check_algorithm(get_algorithm(agent), env, settings or {}, learns_on, functions)
    small = {name: value for name, value in SMALL.items() if name in agent.config_class.model_fields}

    def envs(seed: int) -> VectorEnv:
        return make_env(env, ENVIRONMENTS, seed=seed)

    def make(seed: int) -> Agent:
        with envs(seed) as made:
            spaces = made.observation_space, made.action_space
        arguments: dict[str, Any] = {"num_envs": ENVIRONMENTS} if issubclass(agent, RolloutAgent) else {}
        return agent(*spaces, {**small, **(settings or {}), **FIXED}, backend=learns_on, seed=seed, **arguments)

    return _check(f"{agent.__name__} in {_name(env)} on {learns_on}", make, envs, functions)


def _refuse(agent: Any, env: Any, settings: Any) -> None:
    """Refuses what is no agent, no environment or no settings."""

    def refusal(what: str, received: Any, fix: str) -> ConfigError:
        told = f"{received!r:.100} (of type {type(received).__name__})"
        return ConfigError(what, where="check_agent", received=told, fix=fix)

    if not isinstance(agent, str) and not (isinstance(agent, type) and issubclass(agent, Agent)):
        fix = "pass the name of an algorithm, such as 'ppo', or a class of agents; a component is checked by check"
        raise refusal("this is no agent", agent, fix)
    if not isinstance(env, (str, EnvSpec, list, tuple)) and not callable(env):
        fix = "pass an id such as 'CartPole-v1', 'module:function', or a function that makes an environment"
        raise refusal("this makes no environment", env, fix)
    if settings is not None and not isinstance(settings, Mapping):
        raise refusal("settings are a mapping by name", settings, 'pass {"agent.lr": 1e-3}')


def _check_algorithm(
    algorithm: Algorithm, env: Any, settings: Mapping[str, Any], backend: str, functions: bool
) -> Report:
    if algorithm.agent is None or algorithm.agent.no_single_steps is not None:
        raise ConfigError(
            "this algorithm has no agent that learns from single steps",
            where="check",
            received=repr(algorithm.name),
            fix="check its components: rlweave check module:Component",
        )
    fields = algorithm.agent.config_class.model_fields
    small = {f"agent.{name}": value for name, value in SMALL.items() if name in fields}
    forced = {f"agent.{name}": value for name, value in FIXED.items()}
    fixed = {"env": env if isinstance(env, str) else "callable", "num_envs": ENVIRONMENTS, "backend": backend}
    config = resolve_config(
        algorithm.config_class, presets=algorithm.preset_of(env), sets={**small, **fixed, **settings, **forced}
    )
    config = fill_schedules(config if algorithm.complete is None else algorithm.complete(config))

    def envs(seed: int) -> VectorEnv:
        return make_env(env, ENVIRONMENTS, seed=seed, **making_options(config))

    def make(seed: int) -> Agent:
        with envs(seed) as made:
            found: Agent = algorithm.make_agent(config, made, seed)
        return found

    return _check(f"{algorithm.name} in {_name(env)} on {backend}", make, envs, functions)


def _check(name: str, make: Callable[[int], Agent], envs: Callable[[int], VectorEnv], functions: bool) -> Report:
    checks = (*OF_GRAPHS, *LAWS) if functions else LAWS
    return run_checks(name, AgentSubject(Trial(make, envs)), checks)


def _name(env: Any) -> str:
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)

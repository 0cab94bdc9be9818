"""From what a user names - an id, a function, an object - to what is checked."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from rlweave.envs.contract import check_environment
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.envs.ownership import parts_of
from rlweave.envs.parallel_api import OWN, resolve_parallel
from rlweave.envs.registration import resolve
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError
from rlweave.plugins import import_named
from rlweave.testing.checks.environments.players import Player, SinglePlayer, Subject, calling, refuse
from rlweave.testing.checks.environments.several_agents import ParallelPlayer
from rlweave.testing.checks.environments.vectors import GraphPlayer, GymVectorPlayer, OwnVectorPlayer

_GRAPH_ENVS = 4


def subject_of(source: Any) -> Subject:
    """What is to be checked.

    Args:
        source: As for `check_env`.

    Raises:
        EnvError: There is no such environment, or it is none.
    """
    if isinstance(source, str):
        return _named(source)
    if isinstance(source, EnvSpec):
        return _registered(source)
    if callable(getattr(source, "step", None)) and not isinstance(source, type):
        return _object(source)
    if callable(source):
        named = source.func if isinstance(source, functools.partial) else source
        return _made_by(getattr(named, "__qualname__", None) or type(named).__name__, source)
    raise refuse(
        "this is no environment, and makes none",
        f"{source!r:.100} (of type {type(source).__name__})",
        "pass an id such as 'CartPole-v1', a class, a function that returns an environment, or 'module:function'",
    )


def _object(env: Any) -> Subject:
    """An environment itself: copies of it are played, where it can be copied."""
    spec = getattr(env, "spec", None)
    name = spec.id if isinstance(spec, EnvSpec) else f"a {type(getattr(env, 'unwrapped', env)).__name__}"
    limits = (part.spec.max_episode_steps for part in parts_of(env) if isinstance(part, TimeLimit) and part.spec)
    limit = next(limits, None)
    try:
        copied = copy.deepcopy(env)
    except Exception:  # a simulator, a socket, a process
        return Subject(name, lambda: player_of(env), repeats=False, limit=limit)
    return Subject(name, lambda: player_of(copy.deepcopy(copied)), limit=limit)


def _named(name: str) -> Subject:
    module, _, attribute = name.rpartition(":")
    if module:
        fix = "install it, start where it lies, or correct the part before the colon"
        import_named(module, EnvError, "the module of an environment", received=name, fix=fix)
        own = getattr(sys.modules[module], attribute, None)
        if attribute not in gymnasium.registry:
            if callable(own):
                return _made_by(name, own)
            if own is not None:
                return subject_of(own)  # an environment itself, or an error that says what it is
    if name in OWN or (name not in gymnasium.registry and _is_parallel_module(name)):
        return _made_by(name, resolve_parallel(name))
    return _registered(resolve(name))


def _is_parallel_module(name: str) -> bool:
    if "." not in name or not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return hasattr(importlib.import_module(name), "parallel_env")
    except ImportError:
        return False


def _registered(spec: EnvSpec) -> Subject:
    def make() -> Player:
        with calling("construction"):
            return player_of(gymnasium.make(spec, disable_env_checker=True))

    return Subject(spec.id, make, limit=spec.max_episode_steps)


def _made_by(name: str, factory: Callable[..., Any]) -> Subject:
    arguments = {"num_envs": _GRAPH_ENVS} if _is_graph_class(factory) else {}
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise refuse(
            f"what makes the environment needs arguments: {error}",
            name,
            "write a function without arguments that makes it, or pass functools.partial(it, ...)",
        ) from None
    except ValueError:
        pass  # it has no signature that can be looked at

    def make() -> Player:
        with calling("construction"):
            made = factory(**arguments)
        return player_of(made)

    return Subject(name, make)


def _is_graph_class(factory: Any) -> bool:
    return isinstance(factory, type) and issubclass(factory, GraphEnvironment)


def player_of(env: Any) -> Player:
    """An environment of any kind, ready to be played.

    Raises:
        EnvError: It is no environment.
        CallFailed: It is one, with a fault that shows at once.
    """
    if isinstance(env, VectorEnv):
        return OwnVectorPlayer(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return GymVectorPlayer(env)
    if isinstance(env, GraphEnvironment):
        return GraphPlayer(env)
    if hasattr(env, "possible_agents"):
        return ParallelPlayer(env)
    if not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
        raise refuse(
            "what was made is no environment",
            f"{env!r:.100} (of type {type(env).__name__})",
            "have the function return a gymnasium.Env, a vector environment, or one with PettingZoo's parallel API",
        )
    with calling("construction"):
        check_environment(env)
    return SinglePlayer(env)

"""Environment ids: registration of rlweave's own, and look-up of all others."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlweave.errors import ConfigError, EnvError, install_command, nearest
from rlweave.plugins import import_named

GRID_WORLD_ID = "rlweave/GridWorld-v0"
CATCH_ID = "rlweave/Catch-v0"
CUE_RECALL_ID = "rlweave/CueRecall-v0"
MASKED_RECALL_ID = "rlweave/MaskedRecall-v0"
SINE_TASKS_ID = "rlweave/SineTasks-v0"
POINT_NAVIGATION_ID = "rlweave/PointNavigation-v0"


def register_environments() -> None:
    """Registers rlweave's own environments with Gymnasium; does nothing the second time."""
    if GRID_WORLD_ID not in gymnasium.registry:
        gymnasium.register(GRID_WORLD_ID, "rlweave.envs.gridworld:GridWorld", max_episode_steps=100)
    if CATCH_ID not in gymnasium.registry:
        gymnasium.register(CATCH_ID, "rlweave.envs.catch:Catch")
    if CUE_RECALL_ID not in gymnasium.registry:
        gymnasium.register(CUE_RECALL_ID, "rlweave.envs.cue_recall:CueRecall")
    if MASKED_RECALL_ID not in gymnasium.registry:
        gymnasium.register(MASKED_RECALL_ID, "rlweave.envs.masked_recall:MaskedRecall")
    if SINE_TASKS_ID not in gymnasium.registry:
        gymnasium.register(SINE_TASKS_ID, "rlweave.envs.sine_tasks:SineTasks")
    if POINT_NAVIGATION_ID not in gymnasium.registry:
        gymnasium.register(POINT_NAVIGATION_ID, "rlweave.envs.point_navigation:PointNavigation")


def resolve(env_id: str) -> EnvSpec:
    """Finds the registration of an environment id.

    Args:
        env_id: An id like ``"CartPole-v1"``, ``"module:id"`` to import a module that registers it first, or
            ``"module:Class"`` (or ``"module:function"``) of a class or function that makes the environment.

    Raises:
        EnvError: If no such id is registered (it names the nearest one), or a package that it needs is missing.

    >>> resolve("CartPole-v1").max_episode_steps
    500
    """
    module, _, name = env_id.rpartition(":")
    if module:
        fix = "install it, start where it lies, or correct the part before the colon"
        import_named(module, EnvError, "the module of an environment id", received=env_id, fix=fix)
        own = getattr(sys.modules[module], name, None)
        if callable(own) and name not in gymnasium.registry:
            return EnvSpec(env_id, entry_point=own)
    if name.startswith("ALE/"):
        _register_atari(env_id)
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if name.startswith(_PASSED):
            raise EnvError(
                "this environment was passed as an object that another process cannot import",
                received=env_id,
                fix="train with a class or function of a module, or with its name, 'module:Class'",
            ) from error
        if module and not name.startswith("ALE/"):
            names = [key for key, value in vars(sys.modules[module]).items() if callable(value) and key[0] != "_"]
            raise EnvError(
                f"{module} has no class or function {name!r}, and registers no environment of this id",
                where="env",
                received=env_id,
                fix=nearest(name, names) if names else f"define a function {name!r} there that makes the environment",
            ) from error
        raise EnvError(
            f"no environment is registered under the id {name!r}",
            where="env",
            received=env_id or "''",
            fix=nearest(name, _newest_ids())
            + "; an environment of your own has to be registered by gymnasium.register first, in a module that is "
            "imported as 'module:id' where another process is to know it, or passed as a function that makes it",
        ) from error
    _check_installed(spec)
    return spec


def name_environment(env: str | EnvSpec | Callable[..., Any]) -> str:
    """The name by which settings know an environment.

    Args:
        env: An id or another name, which stays; a registration; or a class or function that makes the environment.

    Returns:
        ``"module:Class"`` of what another process can import; otherwise an id that is registered here.

    Raises:
        ConfigError: It is none of these, such as an environment object.

    >>> from rlweave.envs.gridworld import GridWorld
    >>> name_environment(GridWorld)
    'rlweave.envs.gridworld:GridWorld'
    """
    if isinstance(env, str):
        return env
    if isinstance(env, EnvSpec):
        receive_registration(env)
        return env.id
    if not callable(env):
        raise ConfigError(
            "an environment is given by what makes it: several are needed, in training and in evaluation",
            where="env",
            received=f"a {type(env).__name__}",
            fix="pass its id, its class, or a function that makes it",
        )
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", type(env).__name__)
    if module not in (None, "__main__") and getattr(sys.modules.get(module), name, None) is env:
        return f"{module}:{name}"
    plain = re.sub(r"[^A-Za-z0-9_]", "", name.rpartition(".")[2]) or "environment"
    for number in itertools.count():
        env_id = f"{_PASSED}{plain}-v{number}"
        spec = gymnasium.registry.setdefault(env_id, EnvSpec(env_id, entry_point=env))
        if spec.entry_point is env:
            return env_id
    raise AssertionError


#: Ids of environments that were passed as objects begin with this.
_PASSED = "passed/"


def registration_to_ship(env_id: str | Callable[..., gymnasium.Env[Any, Any]]) -> EnvSpec | None:
    """The registration of an id, for a process that has not run what registered it.

    Args:
        env_id: As for `resolve`; or a class or function that makes the environment, which is pickled by itself.

    Returns:
        The registration, with the class itself where it names one of the script that runs; None where the other process
        finds it by itself: an id with its module, or of Gymnasium, ALE or rlweave; and where there is none.
    """
    spec = gymnasium.registry.get(env_id) if isinstance(env_id, str) and ":" not in env_id else None
    if spec is None or str(spec.entry_point).partition(".")[0] in ("gymnasium", "rlweave", "ale_py"):
        return None
    entry_point = spec.entry_point
    if isinstance(entry_point, str) and entry_point.startswith("__main__:"):  # another process has another __main__
        entry_point = getattr(sys.modules["__main__"], entry_point.partition(":")[2])
    return dataclasses.replace(spec, entry_point=entry_point)


def receive_registration(spec: EnvSpec) -> None:
    """Registers an id here that another process has registered, unless it is known."""
    gymnasium.registry.setdefault(spec.id, spec)


def _register_atari(env_id: str) -> None:
    try:
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise EnvError(
            "Atari environments need the package ale-py", received=env_id, fix=install_command("atari")
        ) from error
    gymnasium.register_envs(ale_py)


#: Extras by the module of Gymnasium whose environments need them.
_EXTRAS = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "box2d"}


def _check_installed(spec: EnvSpec) -> None:
    """Refuses an environment whose module needs a missing package, before Gymnasium fails with less to go by."""
    if not isinstance(spec.entry_point, str):
        return
    module = spec.entry_point.partition(":")[0]
    try:
        importlib.import_module(module)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        extra = next((extra for prefix, extra in _EXTRAS.items() if module.startswith(prefix)), None)
        raise EnvError(
            f"the environment {spec.id} needs a package that is not installed",
            received=str(error).partition("\n")[0],
            fix="install it" if extra is None else install_command(extra),
        ) from error


def _newest_ids() -> list[str]:
    """Returns every registered id in its newest version only: the others would crowd the list of suggestions."""
    newest: dict[str, EnvSpec] = {}
    for spec in gymnasium.registry.values():
        name = f"{spec.namespace}/{spec.name}" if spec.namespace else spec.name
        if name not in newest or (spec.version or 0) > (newest[name].version or 0):
            newest[name] = spec
    return sorted(spec.id for spec in newest.values())

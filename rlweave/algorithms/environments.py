"""Names of environments, checked before anything is built."""

from __future__ import annotations

import difflib
import importlib
import re

from rlweave.errors import ConfigError


def environment_names() -> list[str]:
    """The ids of all environments that Gymnasium knows now, sorted."""
    import gymnasium

    _register_our_own()
    return sorted(gymnasium.registry)


def check_environment(name: str) -> None:
    """Checks that an environment id can be made.

    Args:
        name: A Gymnasium id, such as `CartPole-v1`, or `module:id`, which imports the module that registers it.

    Raises:
        ConfigError: When there is none; names the nearest.
    """
    import gymnasium

    module, colon, env_id = name.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError("the module of the environment is missing", received=name, fix=str(error)) from None
    if env_id in gymnasium.registry:
        return
    names = environment_names()
    if env_id in names:
        return
    fix = "`rlweave list environments` shows all"
    near = _nearest_environment(env_id, names)
    raise ConfigError(
        "unknown environment", received=repr(name), fix=f"did you mean {near!r}? ({fix})" if near else fix
    )


def _nearest_environment(env_id: str, names: list[str]) -> str | None:
    """Looks at the name first and the version after it: of the right name, the newest version is meant."""
    versions: dict[str, list[str]] = {}
    for name in names:
        versions.setdefault(_without_version(name), []).append(name)
    near = difflib.get_close_matches(_without_version(env_id), versions, n=1, cutoff=0.6)
    if not near:
        return None
    return max(versions[near[0]], key=lambda name: int((re.findall(r"-v(\d+)$", name) or ["0"])[0]))


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id.lower())


def _register_our_own() -> None:
    """Imports the package that registers rlweave's own environments, where it is there."""
    importlib.import_module("rlweave.envs")

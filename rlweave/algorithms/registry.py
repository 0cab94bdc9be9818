"""The algorithms that can be trained by name.

Those of the core are listed below by the module that defines them, so that listing them imports none. Others, those of
`rlweave.extras` and of third parties, register an `Algorithm` through the entry point group `rlweave.algorithms`, or
with `register_algorithm`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import TYPE_CHECKING

from rlweave.errors import ConfigError, nearest
from rlweave.plugins import imported, load_plugin, plugin_error

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm

ENTRY_POINT_GROUP = "rlweave.algorithms"

# Name -> "module:attribute" of its Algorithm.
_BUILT_IN = {
    "a2c": "rlweave.algorithms.a2c:a2c",
    "a3c": "rlweave.algorithms.a3c:a3c",
    "ape-x": "rlweave.algorithms.ape_x:ape_x",
    "appo": "rlweave.algorithms.appo:appo",
    "ddpg": "rlweave.algorithms.ddpg:ddpg",
    "dqn": "rlweave.algorithms.dqn:dqn",
    "impala": "rlweave.algorithms.impala:impala",
    "ppo": "rlweave.algorithms.ppo:ppo",
    "pqn": "rlweave.algorithms.pqn:pqn",
    "sac": "rlweave.algorithms.sac:sac",
    "td3": "rlweave.algorithms.td3:td3",
}
_registered: dict[str, Algorithm] = {}


def register_algorithm(algorithm: Algorithm) -> Algorithm:
    """Makes an algorithm known by its name; the same definition, run again as in a notebook, replaces it.

    Raises:
        ConfigError: When the name is taken by another.
    """
    other = _registered.get(algorithm.name, algorithm)
    if algorithm.name in _BUILT_IN or _definition(other) != _definition(algorithm):
        raise ConfigError(
            "there is an algorithm of this name already",
            where="register_algorithm",
            received=repr(algorithm.name),
            fix="choose another name" + ("" if algorithm.name in _BUILT_IN else ", or start Python anew"),
        )
    _registered[algorithm.name] = algorithm
    return algorithm


def _definition(algorithm: Algorithm) -> list[tuple[str, str, str]]:
    """Where the classes and functions of an algorithm are defined: field, module and qualified name of each."""
    parts = ((field.name, getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm))
    return [(name, part.__module__, part.__qualname__) for name, part in parts if hasattr(part, "__qualname__")]


def algorithm_names() -> list[str]:
    """The names of all algorithms, sorted; imports none of them."""
    entry_points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return sorted({*_BUILT_IN, *_registered, *(point.name for point in entry_points)})


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises:
        ConfigError: When there is none (names the nearest), when several packages offer one of this name, or when the
            package that offers it is broken.
    """
    points = [point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if point.name == name]
    ours = name in _BUILT_IN or name in _registered
    if points and (ours or len({point.value for point in points}) > 1):
        others = ", ".join(point.value for point in points[:1] if not ours)
        raise plugin_error(points[-1], f"there is an algorithm {name!r} already, {others or 'in rlweave itself'}")
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        found: Algorithm = imported(_BUILT_IN[name])
        return found
    from rlweave.algorithms.algorithm import Algorithm  # listing names needs no agents

    for point in points:
        loaded = load_plugin(point)
        if not isinstance(loaded, Algorithm):
            raise plugin_error(point, f"{point.value} is no Algorithm, but of type {type(loaded).__name__}")
        return loaded
    raise ConfigError("unknown algorithm", received=repr(name), fix=nearest(name, algorithm_names()))

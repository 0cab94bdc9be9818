"""What environments hold in common: attributes of their classes and globals of their modules; and what a reset left."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

from rlweave.envs.object_state import attributes_of
from rlweave.envs.ownership import parts_of
from rlweave.graph import Component
from rlweave.graph.variable import Variable
from rlweave.testing.checks.environments.values import copied, difference, leaves, shown

_LIBRARIES = ("gymnasium", "builtins", "abc", "typing", "numpy", "pettingzoo", "enum")


def own_parts(env: Any) -> list[Any]:
    """An environment and what it wraps, without the wrappers of Gymnasium."""
    return [part for part in parts_of(env) if not _is_library(type(part))] or [env]


def _is_library(kind: type) -> bool:
    in_library = kind.__module__.partition(".")[0] in _LIBRARIES
    return (in_library and issubclass(kind, gymnasium.Wrapper)) or kind.__module__.partition(".")[0] == "builtins"


def shared_state(env: Any) -> dict[str, Any]:
    """Copies of the plain data that all environments of these classes share, by name."""
    found: dict[str, Any] = {}
    for part in own_parts(env):
        for kind in type(part).__mro__:
            if kind.__module__.partition(".")[0] in _LIBRARIES:
                continue
            for name, value in vars(kind).items():
                if not name.startswith("__"):
                    found[f"{kind.__name__}.{name}"] = _data(value)
            for name, value in vars(sys.modules.get(kind.__module__, object())).items():
                if not name.startswith("__") and not isinstance(value, type):
                    found[f"{kind.__module__}.{name}"] = _data(value)
    return {name: value for name, value in found.items() if value is not None}


def _data(value: Any) -> Any:
    """A copy of plain data; None of anything else."""
    if any(isinstance(leaf, Component | Variable) for _, leaf in leaves(value)):
        return None
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, np.random.Generator):
        return copied(value.bit_generator.state)
    return copied(value) if isinstance(value, (bool, int, float, str, list, dict, tuple, np.ndarray)) else None


def shared_changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first name whose data has changed; empty: none."""
    return next((name for name, value in before.items() if difference(value, after.get(name)) is not None), "")


def changed_attribute(new: Any, used: Any) -> str:
    """The first attribute that differs in two environments, and how; empty: none that is plain data."""
    for one, other in zip(own_parts(new), own_parts(used), strict=False):
        mine, its = attributes_of(one), attributes_of(other)
        for name, value in mine.items():
            if name in its and (found := difference(_data(value), _data(its[name]))) is not None:
                return f"self.{name} is {shown(found[2])}, in a new environment {shown(found[1])}"
    return ""

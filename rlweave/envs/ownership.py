"""An environment belongs to one vector environment: two that step the same object would mix up its episodes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from rlweave.errors import EnvError

_OWNERS: weakref.WeakValueDictionary[int, Ownership] = weakref.WeakValueDictionary()
"""Owners by the id of an environment; an owner keeps its environments alive, so that ids stay unique."""


class Ownership:
    """Environments in use, until they are released or this object is collected.

    Args:
        envs: The environments.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        self._parts = [part for env in envs for part in parts_of(env)]
        for part in self._parts:
            _OWNERS[id(part)] = self

    def release(self) -> None:
        """Releases the environments."""
        for part in self._parts:
            if _OWNERS.get(id(part)) is self:
                del _OWNERS[id(part)]
        self._parts = []


def own(envs: Sequence[Any], what: str = "environment") -> Ownership:
    """Takes environments into use.

    Raises:
        EnvError: Two of them are one object or wrap one object, or one is in use already.
    """
    refuse_shared(envs)
    for index, env in enumerate(envs):
        shared = next((part for part in parts_of(env) if id(part) in _OWNERS), None)
        if shared is not None:
            raise EnvError(
                f"this {what} is in use already, in another vector environment",
                where=f"{what} {index}",
                received=repr(shared),
                fix=f"have the function make a new {what} at each call (evaluations, too, have some of their own), or "
                "close() the other one first",
            )
    return Ownership(envs)


def refuse_shared(envs: Sequence[Any]) -> None:
    """Refuses environments that are not distinct objects.

    Raises:
        EnvError: Two of them are one object, or wrap one object.
    """
    first: dict[int, int] = {}
    for index, env in enumerate(envs):
        for part in parts_of(env):
            other = first.setdefault(id(part), index)
            if other != index:
                raise EnvError(
                    "two sub-environments are one object, which would take the actions of both",
                    where=f"environments {other} and {index}",
                    received=repr(part),
                    fix="have the function make a new environment at each call",
                )


def parts_of(env: Any) -> Iterator[Any]:
    """An environment and all that it wraps."""
    seen: list[Any] = []
    while env is not None and not any(env is other for other in seen):
        seen.append(env)
        yield env
        inner = vars(env).get("env", vars(env).get("aec_env")) if hasattr(env, "__dict__") else None
        env = inner if inner is not None else getattr(env, "unwrapped", None)

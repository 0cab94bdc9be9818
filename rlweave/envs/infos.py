"""What is read from an environment's info: numbers that become metrics, and masks of allowed actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.envs.contract import plain_reward, reset_values, step_values
from rlweave.errors import EnvError, nearest

InfoNumbers = tuple[tuple[str, float], ...]
"""Leaves and their numbers."""


class InfoMetrics:
    """Takes numbers out of infos.

    Args:
        leaves: Their paths: `"is_success"`, or `"timing/seconds"` in a nested info.
    """

    def __init__(self, leaves: Sequence[str]) -> None:
        self._leaves = tuple(leaves)
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def of(self, info: Mapping[str, Any]) -> InfoNumbers:
        """The numbers in the info of an episode's last step; missing ones are left out.

        Raises:
            EnvError: A leaf is no number, or no episode has had it yet.
        """
        found = []
        for leaf in self._leaves:
            value: Any = info
            for key in leaf.split("/"):
                value = value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
            if value is _MISSING:
                if leaf in self._seen:
                    continue
                raise EnvError(
                    f"the info of an episode's last step has no {leaf!r}, which is to be a metric",
                    received=f"keys {sorted(map(str, info))}",
                    fix=nearest(leaf, map(str, info)) if info else "leave it out of info_metrics",
                )
            self._seen.add(leaf)
            try:
                found.append((leaf, plain_reward(value)))
            except EnvError as error:
                raise EnvError(
                    f"{leaf!r} in the info is to be a metric, and is no number",
                    received=error.received,
                    fix="leave it out of info_metrics, or name a leaf within it, as in 'timing/seconds'",
                ) from None
        return tuple(found)


_MISSING: Any = object()


MASK = "action_mask"
"""The leaf of an observation that holds the mask."""


class InfoMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations `{"action_mask": (N,) bool, "observation": as before}`.

    Args:
        env: An environment with N actions whose info has a mask of N numbers (0: not allowed) at each step.
        key: The mask's key in the info, such as "action_mask" in Taxi.

    Raises:
        EnvError: The actions cannot be masked; later, in a step: the info has no such key or a mask of another size,
            or no action is allowed although the episode goes on.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], key: str) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise EnvError(
                "only actions of which one of N is chosen can be masked",
                where="mask of actions in the info",
                received=repr(env.action_space),
                fix="leave the mask out",
            )
        self.key, self.number = key, int(env.action_space.n)
        self.observation_space = spaces.Dict(
            {MASK: spaces.MultiBinary(self.number), "observation": env.observation_space}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = reset_values(self.env.reset(seed=seed, options=options))
        return self._masked(observation, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = step_values(self.env.step(action))
        ended = bool(terminated or truncated)
        return self._masked(observation, info, ended), reward, terminated, truncated, info

    def _masked(self, observation: Any, info: dict[str, Any], ended: bool) -> dict[str, Any]:
        if self.key not in info:
            if ended:  # no action follows
                return {MASK: np.ones(self.number, np.int8), "observation": observation}
            raise EnvError(
                "the info has no mask of actions",
                received=f"keys {sorted(info)}",
                fix=nearest(self.key, info) if info else "leave the mask out",
            )
        mask = np.asarray(info[self.key]) != 0
        if mask.shape != (self.number,):
            raise EnvError(
                "a mask has one number for each action", received=f"shape {mask.shape}, {self.number} actions"
            )
        if not mask.any() and not ended:
            raise EnvError("no action is allowed", received=repr(info[self.key]), fix="end the episode there")
        return {MASK: mask.astype(np.int8), "observation": observation}

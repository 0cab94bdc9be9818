"""Numbers of an environment's info that become metrics: those of the last step of each episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave.envs.contract import plain_reward
from rlweave.errors import EnvError, nearest

InfoNumbers = tuple[tuple[str, float], ...]
"""Leaves and their numbers."""


class InfoMetrics:
    """Takes numbers out of infos.

    Args:
        leaves: Which, by path: `"is_success"`, or `"timing/seconds"` in a nested info.
    """

    def __init__(self, leaves: Sequence[str]) -> None:
        self._leaves = tuple(leaves)
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def of(self, info: Mapping[str, Any]) -> InfoNumbers:
        """The numbers in the info of an episode's last step; what it has not is left out.

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

"""Wrappers that keep running statistics, which a training cannot use: each of its environments has its own.

Those of an evaluation start without statistics, so the policy sees other numbers than in training.
"""

from __future__ import annotations

from typing import Any

from rlweave.envs.ownership import parts_of
from rlweave.errors import EnvError

_FIXES = {
    "NormalizeObservation": "leave the wrapper out and set agent.normalize_observations=true: those statistics belong "
    "to the policy (of ppo, appo, a2c and impala); elsewhere scale by fixed numbers, as "
    "gymnasium.wrappers.TransformObservation does",
    "NormalizeReward": "leave the wrapper out and set agent.normalize_rewards=true (of ppo): those belong to "
    "the learner, and evaluations count the rewards as they are; elsewhere scale by a fixed number, as "
    "gymnasium.wrappers.TransformReward does",
}
_ANY = (
    "leave the wrapper out, or have it scale by fixed numbers; agent.normalize_observations=true (of ppo, appo, a2c "
    "and impala) keeps statistics of observations with the policy"
)


def refuse_running_statistics(env: Any) -> None:
    """Refuses an environment with a wrapper that keeps running means and variances.

    Args:
        env: An environment of any kind, also a vector environment.

    Raises:
        EnvError: It has such a wrapper.
    """
    for part in parts_of(env):
        attributes = getattr(part, "__dict__", {})
        for sub_env in attributes.get("envs", ()):
            refuse_running_statistics(sub_env)
        attribute = next((name for name, value in attributes.items() if _is_statistic(value)), None)
        if attribute is not None:
            kind = type(part).__name__
            raise EnvError(
                f"the wrapper {kind} keeps running statistics, and evaluations would have others than the training",
                received=f"{kind}.{attribute}",
                fix=_FIXES.get(kind, _ANY),
            )


def _is_statistic(value: Any) -> bool:
    """Whether it looks like Gymnasium's `RunningMeanStd`, of which there are many copies."""
    return callable(getattr(value, "update", None)) and all(hasattr(value, name) for name in ("mean", "var", "count"))

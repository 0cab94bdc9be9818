"""The interface of Gymnasium's environments, checked where their values come in; and what a training refuses of them.

Unambiguous values are accepted: a reward in an array of one element, a flag of NumPy. All else is an error here,
because it would become a wrong number later.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlweave.envs.ownership import parts_of
from rlweave.errors import EnvError
from rlweave.spaces import Box, IntBox

BoolArray = npt.NDArray[np.bool_]

LARGEST_REWARD = float(np.finfo(np.float32).max)

_SINCE_GYM_026 = (
    "return observation, info from reset(self, *, seed=None, options=None), and observation, reward, terminated, "
    "truncated, info from step(self, action)"
)


def check_environment(env: Any) -> None:
    """Refuses an object that is no environment of Gymnasium.

    Raises:
        EnvError: It lacks a method or a space, or has the interface of Gym before 0.26.
    """
    for method in ("reset", "step"):
        if isinstance(env, type) or not callable(getattr(env, method, None)):
            raise EnvError(
                "what was made is no environment",
                received=f"the class {env.__name__}" if isinstance(env, type) else f"a {type(env).__name__}",
                fix="pass a function that returns a gymnasium.Env, or the class itself",
            )
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            is_old = type(space).__module__.partition(".")[0] == "gym"
            raise EnvError(
                f"the environment has no {name} of Gymnasium" + (", but one of Gym" if is_old else ""),
                received=repr(space),
                fix=f"have __init__ set self.{name} to one of gymnasium.spaces",
            )
    reset = getattr(env, "unwrapped", env).reset
    try:
        inspect.signature(reset).bind(seed=None, options=None)
    except TypeError as error:
        raise EnvError(
            f"reset() has the interface of Gym before 0.26: {error}",
            received=f"reset{inspect.signature(reset)}",
            fix=_SINCE_GYM_026,
        ) from None
    except ValueError:
        pass  # it has no signature that can be looked at


def reset_values(result: Any) -> tuple[Any, dict[str, Any]]:
    """Observation and info of a reset.

    Raises:
        EnvError: It returned anything else.
    """
    if type(result) is tuple and len(result) == 2 and _is_info(result[1]):
        return result
    raise EnvError(
        "reset() must return observation and info; an observation alone is the interface of Gym before 0.26",
        received=_shown(result),
        fix=_SINCE_GYM_026,
    )


def step_values(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """The five values of a step.

    Raises:
        EnvError: There are not five, or the last is no info.
    """
    if type(result) is tuple and len(result) == 5 and _is_info(result[4]):
        return result
    if isinstance(result, (tuple, list)) and len(result) == 4:
        what = "step() returned four values, which is the interface of Gym before 0.26"
    else:
        what = "step() must return observation, reward, terminated, truncated and info"
    raise EnvError(what, received=_shown(result), fix=_SINCE_GYM_026)


def _is_info(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def plain_reward(value: Any) -> float:
    """A reward as a number.

    Args:
        value: A real number, or an array of one element.

    Raises:
        EnvError: It is neither.
    """
    if type(value) in (float, np.float64, np.float32):
        return float(value)
    try:
        if type(value) is int:
            return float(value)
        array = np.asarray(value)
        if array.size == 1 and array.dtype.kind in "biuf":
            return float(array.reshape(()))
    except (TypeError, ValueError, OverflowError):
        pass
    raise EnvError("the reward must be one number", received=_shown(value), fix="return a float")


def plain_flag(name: str, value: Any) -> bool:
    """A flag as a bool.

    Args:
        name: "terminated" or "truncated".
        value: True or False, 1 or 0, or an array of one of them.

    Raises:
        EnvError: It is none of these.
    """
    if type(value) in (bool, np.bool_):
        return bool(value)
    try:
        array = np.asarray(value)
        if array.size == 1 and (array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.reshape(()) in (0, 1))):
            return bool(array.reshape(()))
    except (TypeError, ValueError):
        pass
    raise EnvError(f"{name} must be True or False", received=_shown(value), fix="return a bool")


def batch_rewards(values: Any, num_envs: int) -> npt.NDArray[np.float64]:
    """Rewards of a vector environment, float64 (num_envs,), a copy.

    Raises:
        EnvError: They are not one number for each sub-environment.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.size != num_envs or array.shape[:1] != (num_envs,):
        raise EnvError(
            "the rewards must be one number for each sub-environment",
            received=_shown(values),
            fix=f"return a float array of shape ({num_envs},)",
        )
    return array.astype(np.float64).reshape(num_envs)


def batch_flags(name: str, values: Any, num_envs: int) -> BoolArray:
    """Flags of a vector environment, bool (num_envs,), a copy.

    Raises:
        EnvError: They are not one flag for each sub-environment.
    """
    array = np.asarray(values)
    is_flags = array.dtype.kind == "b" or (array.dtype.kind in "iu" and bool(np.isin(array, (0, 1)).all()))
    if not is_flags or array.size != num_envs or array.shape[:1] != (num_envs,):
        raise EnvError(
            f"{name} must be one flag for each sub-environment",
            received=_shown(values),
            fix=f"return a bool array of shape ({num_envs},)",
        )
    return array.astype(np.bool_).reshape(num_envs)


def is_old_interface(error: BaseException) -> bool:
    """Whether a wrapper failed to unpack what an environment with the interface of Gym before 0.26 returned."""
    if not isinstance(error, ValueError) or "to unpack (expected" not in str(error):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    line = (frames[-1].line or "") if frames else ""
    number, call = ("expected 5, got 4", ".step(") if ".step(" in line else ("expected 2", ".reset(")
    return number in str(error) and call in line


OLD_INTERFACE = f"that is the interface of Gym before 0.26: {_SINCE_GYM_026}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}: {value!r:.100}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}: {value!r:.100}"
    return f"{value!r:.100} (of type {type(value).__name__})"


class OutOfRange(EnvError):  # noqa: N818 (the field's term)
    """An integer outside of its space.

    Attributes:
        row: Its row, if a whole batch was checked.
    """

    row: int | None = None


def integer_bounds(space: Box) -> tuple[tuple[Any, Any] | None, bool]:
    """Lowest and highest value of a leaf of integers or flags, and whether its dtype holds others, too."""
    if not isinstance(space, IntBox):
        return (0, 1), False
    low, high = _shortest(space.low), _shortest(space.last)
    limits = np.iinfo(space.dtype)
    return (low, high), bool(np.any(low > limits.min) or np.any(high < limits.max))


def _shortest(bound: npt.NDArray[Any]) -> Any:
    """A bound as a number, if it is the same in all dimensions."""
    return bound.flat[0].item() if bound.size and bool((bound == bound.flat[0]).all()) else np.array(bound)


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

    Each environment of a training would have its own, and those of an evaluation start without, so that the policy sees
    other numbers than in training.

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

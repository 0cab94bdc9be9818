"""Errors about failures inside environments: which environment, when, on what action, and the original traceback."""

from __future__ import annotations

import textwrap
import traceback
from typing import Any

import gymnasium
import numpy as np

from rlweave.envs.batching import batch_codec
from rlweave.envs.contract import (
    OLD_INTERFACE,
    is_old_interface,
    plain_flag,
    plain_reward,
    reset_values,
    step_values,
)
from rlweave.errors import EnvError, RlweaveError

_SHOWN_CHARACTERS = 500

NOT_FINITE = "repair the environment; in a program of your own, make_env(..., check_finite=False) lets such values pass"
"""The fix for a number that is not finite."""


def environment_failure(
    what: str, *, env: int, phase: str, action: Any = None, trace: str = "", fix: str = ""
) -> EnvError:
    """Builds the error for a failure of one sub-environment.

    Args:
        what: What happened, one sentence.
        env: Index of the sub-environment.
        phase: When it happened: ``"construction"``, ``"reset"`` or ``"step 3 of its episode"``.
        action: The action that it was given, in Gymnasium's form; None where there was none.
        trace: The original traceback as text.
        fix: What to do about it.
    """
    if trace:
        what = f"{what}\n  original traceback:\n{textwrap.indent(trace.rstrip(), '    ')}"
    received = "" if action is None else f"action {_shorten(repr(action))}"
    return EnvError(what, where=f"environment {env}, {phase}", received=received, fix=fix)


def describe(error: BaseException) -> tuple[str, str]:
    """Returns one sentence about an exception that an environment raised, and its traceback as text.

    A value that does not fit its space was found by rlweave and explains itself, so it comes without a traceback.
    """
    if isinstance(error, RlweaveError):
        return f"the environment broke its contract: {error}", ""
    sentence = f"the environment raised {type(error).__name__}: {error}"
    if is_old_interface(error):
        sentence = f"{sentence}; {OLD_INTERFACE}"
    return sentence, "".join(traceback.format_exception(error))


def step_phase(episode_step: int) -> str:
    """Names a step in an error message.

    Args:
        episode_step: The step's number in its episode; the first step is 1.
    """
    return f"step {episode_step} of its episode"


class SubEnvFailure(Exception):  # noqa: N818 (it carries an error, it is none)
    """Carries an `EnvError` through Gymnasium's vector environments.

    Gymnasium's asynchronous vector environment re-raises ``type(error)(error)``; this class undoes the nesting.

    Args:
        error: The error to carry.
    """

    def __init__(self, error: EnvError | SubEnvFailure) -> None:
        self.error: EnvError = error.error if isinstance(error, SubEnvFailure) else error
        super().__init__(self.error)


class SubEnvGuard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that makes a sub-environment right inside Gymnasium's vector environments.

    A failure names the environment, the step and the action. What the environment returns is checked before it is
    cast and batched. Observations are copied, because SAME_STEP keeps the final one while it resets, which overwrites
    it where an environment returns the same array every time.

    Args:
        env: The sub-environment.
        index: Its index.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index
        self._episode_step = 0
        self._codec = batch_codec(env.observation_space)

    def _taken(self, observation: Any) -> Any:
        """A copy of an observation in the dtypes of its space; refuses what Gymnasium's cast would change."""
        row = self._codec.allocate(1)
        self._codec.write(row, 0, observation)
        self._codec.check_range(row)
        return _copy(self.env.observation_space, observation)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environment; see `gymnasium.Env.reset`."""
        self._episode_step = 0
        try:
            observation, info = reset_values(self.env.reset(seed=seed, options=options))
            return self._taken(observation), info
        except Exception as error:
            what, trace = describe(error)
            raise SubEnvFailure(environment_failure(what, env=self._index, phase="reset", trace=trace)) from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment; see `gymnasium.Env.step`."""
        self._episode_step += 1
        try:
            observation, reward, terminated, truncated, info = step_values(self.env.step(action))
            flags = plain_flag("terminated", terminated), plain_flag("truncated", truncated)
            return self._taken(observation), plain_reward(reward), *flags, info
        except Exception as error:
            what, trace = describe(error)
            phase = step_phase(self._episode_step)
            failure = environment_failure(what, env=self._index, phase=phase, action=action, trace=trace)
            raise SubEnvFailure(failure) from error


def _copy(space: gymnasium.Space[Any], observation: Any) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _copy(child, observation[key]) for key, child in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_copy(child, item) for child, item in zip(space.spaces, observation, strict=True))
    return observation if space.dtype is None or space.shape is None else np.array(observation, space.dtype)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " ..."

"""States of single environments, saved and loaded; a failure says which one it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlweave.envs.failures import describe, environment_failure
from rlweave.envs.object_state import Data, NotData, capture, size_of
from rlweave.envs.restoring import restore
from rlweave.errors import EnvError

MAX_BYTES = 16 << 20
"""Limit for one environment. A larger state is mostly a data set, which each checkpoint would hold again."""

CANNOT_BE_SAVED = "{}; an environment that has get_state() and set_state(state) can be saved"


def save_environment(env: Any) -> Data:
    """The state of an environment; see `capture`.

    Raises:
        NotData: It cannot be captured, or is larger than `MAX_BYTES`.
    """
    data = capture(env)
    size = size_of(data)
    if size > MAX_BYTES:
        raise NotData(f"the attributes of the environment hold {size / 2**20:.0f} MiB, more than {MAX_BYTES >> 20}")
    return data


def save_environments(envs: Sequence[Any]) -> list[Data]:
    """The state of each environment.

    Raises:
        NotData: One cannot be saved.
        EnvError: The `get_state` of one fails.
    """
    saved = []
    for index, env in enumerate(envs):
        with _telling_failures(index, "get_state"):
            saved.append(save_environment(env))
    return saved


def load_environments(envs: Sequence[Any], states: Sequence[Data]) -> None:
    """Gives each environment its state; they were reset before, as a reset may make objects that are no data.

    Raises:
        NotData: One does not fit.
        EnvError: The `set_state` of one fails.
    """
    for index, (env, state) in enumerate(zip(envs, states, strict=True)):
        with _telling_failures(index, "set_state"):
            restore(state, env)


def check_number(state: Mapping[str, Any], num_envs: int) -> None:
    """Refuses the state of another number of environments."""
    if state["num_envs"] != num_envs:
        raise NotData(f"it is of {state['num_envs']} environments, not of {num_envs}")


def does_not_fit(error: NotData) -> EnvError:
    """The error for a state that is of another environment."""
    return EnvError(
        f"the state of an environment does not fit: {error}",
        where="load_state",
        fix="load it into an environment that is made with the same arguments, or reset() this one",
    )


@contextlib.contextmanager
def _telling_failures(index: int, phase: str) -> Iterator[None]:
    try:
        yield
    except NotData:
        raise
    except (Exception, SystemExit) as error:
        what, trace = describe(error)
        raise environment_failure(what, env=index, phase=phase, trace=trace) from error

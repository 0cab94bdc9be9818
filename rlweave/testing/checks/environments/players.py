"""Environments of all kinds behind the few calls that the checks make: reset, step, draw an action."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import os
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import rlweave
from rlweave.envs.contract import reset_values, step_values
from rlweave.envs.object_state import NotData
from rlweave.envs.restoring import restore
from rlweave.envs.saving import save_environment
from rlweave.errors import EnvError, RlweaveError
from rlweave.testing.checks.environments.values import leaves

_LIBRARIES = tuple(str(Path(module.__file__ or "").parent) + os.sep for module in (gymnasium, rlweave, np))


def _from_here(path: str) -> str:
    """A path, from the current directory if it lies there."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path


class CallFailed(Exception):  # noqa: N818 (it is caught where the finding is made)
    """A call of an environment raised an error.

    Args:
        call: The call: "reset", "step", "construction" or "close".
        error: What it raised.
    """

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__(f"{call} raised {type(error).__name__}: {error}")
        self.call, self.error = call, error

    @property
    def place(self) -> str:
        """The innermost line outside of libraries: file, line and function."""
        frames = traceback.extract_tb(self.error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, "<"))]
        if not own and not isinstance(self.error, RlweaveError):
            own = list(frames)
        return f"{_from_here(own[-1].filename)}:{own[-1].lineno}, in {own[-1].name}" if own else ""

    @property
    def seen(self) -> str:
        """What it raised, on one line."""
        if isinstance(self.error, RlweaveError):
            received = f": {self.error.received}" if self.error.received else ""
            return f"{self.error.what}{received}"
        return f"{self.call}() raised {type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def fix(self) -> str:
        """What the error itself says about it."""
        own = self.error.fix if isinstance(self.error, RlweaveError) else ""
        return own or "correct it there; the same seed and actions repeat it"


class calling:  # noqa: N801 (it is used as a function)
    """Turns what an environment raises into `CallFailed`; a class, as a generator takes as long as a small step.

    Args:
        call: The call.
    """

    def __init__(self, call: str) -> None:
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (Exception, SystemExit)) and not isinstance(error, (CallFailed, NotData)):
            raise CallFailed(self._call, error) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the warnings of environments to itself: steps that nobody takes on purpose cause some."""
    logger = logging.getLogger("gymnasium")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass
class Outcome:
    """What a reset or a step gave, as it was handed out; in vector environments for all rows, else for one.

    Attributes:
        observation: The observation.
        info: The info.
        reward: The reward; None after a reset, as `terminated` and `truncated`.
        terminated: Whether a terminal state was reached.
        truncated: Whether the episode was cut.
    """

    observation: Any
    info: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None

    def data(self) -> dict[str, Any]:
        """All but the info, for comparisons."""
        return {
            "observation": self.observation,
            "reward": self.reward,
            "terminated": self.terminated,
            "truncated": self.truncated,
        }


@dataclass
class Part:
    """What one agent gets, or all rows of a vector environment.

    Attributes:
        name: Of the agent; empty where there is one.
        outcome: What it got.
        observation_space: Gymnasium's space of the observation.
        action_space: Gymnasium's space of one action, of one row.
        rows: Number of environments, in a vector environment.
    """

    name: str
    outcome: Outcome
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    rows: int | None = None


class Player(ABC):
    """One environment.

    Args:
        env: The environment.
    """

    #: The methods of the environment in which steps and resets are written.
    written_in: Mapping[str, str] = {"step": "step", "reset": "reset", "close": "close", "get_state": "get_state"}

    def __init__(self, env: Any) -> None:
        self.env = env

    @abstractmethod
    def reset(self, seed: int | None) -> Outcome:
        """Begins an episode."""

    @abstractmethod
    def step(self, action: Any) -> Outcome:
        """Takes an action."""

    @abstractmethod
    def parts(self, outcome: Outcome) -> Iterator[Part]:
        """What an outcome holds, agent by agent."""

    @abstractmethod
    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        """A random action that is allowed after an outcome."""

    @abstractmethod
    def ended(self, outcome: Outcome) -> bool:
        """Whether a reset has to come next."""

    def place(self, call: str) -> str:
        """Class, method, file and line of a call, as far as they are known."""
        kind = type(getattr(self.env, "unwrapped", self.env))
        function = inspect.unwrap(getattr(kind, self.written_in[call], kind))
        code = getattr(function, "__code__", None)
        if code is None:
            return ""
        return f"{kind.__name__}.{function.__name__}, {_from_here(code.co_filename)}:{code.co_firstlineno}"

    def save(self) -> Any:
        """All that later steps depend on.

        Raises:
            NotData: It cannot be saved.
        """
        with calling("get_state"):
            return save_environment(self.env)

    def load(self, state: Any) -> None:
        """Takes over a state; the environment was reset before.

        Raises:
            NotData: It does not fit.
        """
        with calling("set_state"):
            restore(state, self.env)

    def close(self) -> None:
        """Closes the environment, whatever it raises: that was a finding the first time."""
        with contextlib.suppress(CallFailed):
            self.close_or_fail()

    def close_or_fail(self) -> None:
        """Closes the environment.

        Raises:
            CallFailed: It raised an error.
        """
        close = getattr(self.env, "close", None)
        if callable(close):
            with calling("close"):
                close()


class Drawing:
    """Random actions: even ones, and ones that are held for a while, as these come further.

    Args:
        seed: Seeds them.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 1])
        self._spaces: dict[str, gymnasium.Space[Any]] = {}
        self._held: dict[str, Any] = {}
        self._number = 0

    def next_step(self) -> None:
        """Begins the draws of another step."""
        self._number += 1
        if not self._holds() or self.rng.random() < 0.1:
            self._held.clear()

    def _holds(self) -> bool:
        """Every other 50 steps."""
        return self._number // 50 % 2 == 1

    def action(self, name: str, space: gymnasium.Space[Any], mask: Any = None) -> Any:
        """An action of a space; under a mask an allowed one."""
        if mask is not None and isinstance(space, spaces.Discrete):
            allowed = np.flatnonzero(np.asarray(mask))
            return space.start + self.rng.choice(allowed) if len(allowed) else self._sample(name, space)
        if name not in self._held:
            self._held[name] = self._sample(name, space)
        return copy.deepcopy(self._held[name])

    def _sample(self, name: str, space: gymnasium.Space[Any]) -> Any:
        if name not in self._spaces:  # a copy: environments may draw from theirs
            self._spaces[name] = copy.deepcopy(space)
            self._spaces[name].seed(int(self.rng.integers(2**31)))
        return self._spaces[name].sample()


class SinglePlayer(Player):
    """An environment of Gymnasium."""

    def reset(self, seed: int | None) -> Outcome:
        with calling("reset"):
            return Outcome(*reset_values(self.env.reset(seed=seed)))

    def step(self, action: Any) -> Outcome:
        with calling("step"):
            observation, reward, terminated, truncated, info = step_values(self.env.step(action))
        return Outcome(observation, info, reward, terminated, truncated)

    def parts(self, outcome: Outcome) -> Iterator[Part]:
        yield Part("", outcome, self.env.observation_space, self.env.action_space)

    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        draw.next_step()
        return draw.action("", self.env.action_space, usable_mask(outcome, self.env.action_space))

    def ended(self, outcome: Outcome) -> bool:
        return is_true(outcome.terminated) or is_true(outcome.truncated)


def mask_of(observation: Any, info: Any) -> Any:
    """The mask of actions that came with an observation: the leaf or the info "action_mask"; None: there is none."""
    for place in (observation, info):
        for path, leaf in leaves(place):
            if path.rpartition("/")[2] == "action_mask":
                return leaf
    return None


def usable_mask(outcome: Outcome, space: gymnasium.Space[Any]) -> Any:
    """A mask that fits the actions."""
    mask = mask_of(outcome.observation, outcome.info)
    fits = isinstance(space, spaces.Discrete) and mask is not None and np.shape(mask) == (int(space.n),)
    return mask if fits else None


def is_true(flag: Any) -> bool:
    """A flag, whatever its type; what is none is False here."""
    try:
        return bool(np.asarray(flag).any())
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class Subject:
    """What is checked.

    Attributes:
        name: Of the environment, for the report.
        make: Makes a new one; the same one again where only an object was given.
        repeats: Whether `make` makes new ones.
        limit: The time limit that the registration declares.
    """

    name: str
    make: Callable[[], Player]
    repeats: bool = True
    limit: int | None = None


def refuse(what: str, received: str, fix: str) -> EnvError:
    """An error about what is to be checked."""
    return EnvError(what, where="check_env", received=received, fix=fix)

"""Small environments, some with a fault, that the tests need at module level: sub-processes have to import them."""

from __future__ import annotations

import os
import pathlib
import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counting(gymnasium.Env[Any, Any]):
    """Observes (episode, step, a random number of the episode); the reward is step + action / 10.

    `length` steps make an episode; 0 draws a length from 2 to 5 for each episode.
    """

    def __init__(self, length: int = 3, terminates: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(2)
        self._length, self._terminates = length, terminates
        self._episode = self._step = self._this_length = 0
        self._number = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        self._number = 0.25 + self.np_random.random()
        self._this_length = self._length or int(self.np_random.integers(2, 6))
        return self._observe(), {"episode": self._episode, "options": options}

    def step(self, action: Any) -> Any:
        assert self._step < self._this_length, "stepped after the end of an episode"
        self._step += 1
        ended = self._step == self._this_length
        terminated = ended and self._terminates
        info = {"step": self._step}
        return self._observe(), self._step + int(action) / 10, terminated, ended and not terminated, info

    def _observe(self) -> np.ndarray:
        return np.array([self._episode, self._step, self._number])


class Mutating(Counting):
    """Returns the same array at every step, with new numbers in it."""

    def __init__(self) -> None:
        super().__init__()
        self._array = np.zeros(3)

    def _observe(self) -> np.ndarray:
        self._array[:] = super()._observe()
        return self._array


class FixedReturn(Counting):
    """An episode of `length` steps, whose last reward is `episode_return`; the others are 0."""

    def __init__(self, length: int, episode_return: float) -> None:
        super().__init__(length, terminates=True)
        self._episode_return = episode_return

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self._episode_return if terminated else 0.0, terminated, truncated, info


class LeavesTrace(Counting):
    """Creates a file when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(1000)
        self._path = path

    def close(self) -> None:
        pathlib.Path(self._path).touch()


class FailsAtStep(Counting):
    """Fails at the third step in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__(1000)
        self._how = how

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self._step == 3:
            if self._how == "raise":
                self._boil_over()
            elif self._how == "exit":
                os._exit(7)
            elif self._how == "hang":
                print("hanging", flush=True)
                threading.Event().wait()
            elif self._how == "info":
                return *result[:4], {"fine": 1, "lock": threading.Lock()}
            elif self._how == "shape":
                return np.zeros(1), *result[1:]
        return result

    def _boil_over(self) -> None:
        raise ZeroDivisionError("the kettle boiled over")


class FailsAtReset(Counting):
    """Fails at its second reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self._episode == 1:
            raise RuntimeError("no second chance")
        return super().reset(seed=seed, options=options)


class FailsToStart(Counting):
    """Fails in its constructor."""

    def __init__(self) -> None:
        raise OSError("simulator not found")


class ExitsAtStart(Counting):
    """Ends its process in its constructor."""

    def __init__(self) -> None:
        os._exit(9)


class Nested(gymnasium.Env[Any, Any]):
    """Everything that spaces can be, empty ones included; actions come back as the info."""

    def __init__(self, bad_leaf: bool = False, plain_action: bool = False) -> None:
        self.observation_space = spaces.Dict(
            {
                "outer": spaces.Dict(
                    {"speed": spaces.Box(-1, 1, (2,), np.float64), "gear": spaces.Discrete(3, start=-1)}
                ),
                "empty": spaces.Dict({}),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[5, -5]))),
                "nothing": spaces.Tuple(()),
                "zero": spaces.Box(-1, 1, (0,), np.float32),
                "pixels": spaces.Box(0, 255, (2, 2, 1), np.uint8),
                "count": spaces.Box(-1000, 1000, (), np.int64),
            }
        )
        self.action_space = spaces.Dict(
            {
                **({} if plain_action else {"empty": spaces.Tuple(()), "knob": spaces.Box(0, 1, (), np.float32)}),
                "lever": spaces.Discrete(3, start=-1),
                "wheel": spaces.Box(-1, 1, (2,), np.float64),
                "buttons": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[5, -5]))),
            }
        )
        self._bad_leaf = bad_leaf
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self._step += 1
        return self._observe(), np.float64(0.1), False, self._step == 3, {"action": action}

    def _observe(self) -> Any:
        return {
            "outer": {
                "speed": np.array([0.1 * self._step, np.nan if self._bad_leaf and self._step else 0.0]),
                "gear": self._step % 3 - 1,
            },
            "empty": {},
            "pair": (np.array([1, 0], np.int8), np.array([6, -5 + self._step % 3])),
            "nothing": (),
            "zero": np.zeros(0, np.float32),
            "pixels": np.full((2, 2, 1), 255 - self._step, np.uint8),
            "count": np.array(-self._step),
        }


class Talking(gymnasium.Env[Any, Any]):
    """Observes text, which shared memory cannot hold."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"say": spaces.Text(20), "step": spaces.Box(0, 10, (1,), np.float32)})
        self.action_space = spaces.Text(5)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return self._observe("hello"), {}

    def step(self, action: Any) -> Any:
        assert isinstance(action, str)
        self._step += 1
        return self._observe(action), 0.0, self._step == 2, False, {}

    def _observe(self, text: str) -> Any:
        return {"say": text, "step": np.array([self._step], np.float32)}


class Poisoned(Counting):
    """Returns a bad number at its second step."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self._step == 2 and self._what == "observation":
            observation[1] = np.nan
        if self._step == 2 and self._what == "reward":
            reward = np.inf
        return observation, reward, *rest


class PoisonedReset(Counting):
    """Its second episode starts with infinity."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation + (np.inf if self._episode == 2 else 0.0), info


class Shifted(gymnasium.Env[Any, Any]):
    """Actions and observations that start at -1; it observes the action that it got."""

    def __init__(self, bad: bool = False) -> None:
        self.observation_space = spaces.Discrete(3, start=-1)
        self.action_space = spaces.Discrete(3, start=-1)
        self._bad = bad

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return -1, {}

    def step(self, action: Any) -> Any:
        return 7 if self._bad else action, float(action), False, False, {"action": action}

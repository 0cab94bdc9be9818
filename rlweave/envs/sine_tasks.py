"""Sine regression: the task distribution of Finn et al. 2017, section 5.1."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

FloatArray = npt.NDArray[np.float32]


class SineTasks(gymnasium.Env[FloatArray, FloatArray]):
    """Each task is a sine wave, y = amplitude * sin(x - phase), with amplitude in [0.1, 5] and phase in [0, pi].

    A step is one point: the observation is x, drawn evenly from [-5, 5], the action a prediction of y, the reward minus
    its squared error, and the info's "target" is y. Episodes are truncated after `points` steps. The task stays the
    same until a reset is given a seed, or asks for another one with `options={"new_task": True}`.

    `draw` gives points of many tasks at once.

    Args:
        points: Length of an episode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "new_task": True}  # type: ignore[misc]
    amplitudes, phases, inputs = (0.1, 5.0), (0.0, math.pi), (-5.0, 5.0)

    def __init__(self, points: int = 10, render_mode: str | None = None) -> None:
        self._points, self._step, self.render_mode = points, 0, render_mode
        self._task: tuple[float, float] | None = None
        self.observation_space = spaces.Box(*self.inputs, (1,), np.float32)
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Seeds tasks and points.
            options: With "new_task" true (or a seed) another task is drawn.

        Returns:
            The first x, (1,), and an empty info.
        """
        super().reset(seed=seed)
        if self._task is None or seed is not None or (options or {}).get("new_task"):
            self._task = self.np_random.uniform(*self.amplitudes), self.np_random.uniform(*self.phases)
        self._step = 0
        return self._draw_input(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Measures a prediction.

        Args:
            action: The prediction of y, (1,).

        Returns:
            The next x, minus the squared error, terminated (never), truncated, and {"target": y}.
        """
        assert self._task is not None, "reset() comes before the first step"
        amplitude, phase = self._task
        target = (amplitude * np.sin(self._input - phase)).astype(np.float32)
        self._step += 1
        reward = -float(np.square(np.asarray(action, np.float64) - target).sum())
        return self._draw_input(), reward, False, self._step >= self._points, {"target": target}

    def _draw_input(self) -> FloatArray:
        self._input = self.np_random.uniform(*self.inputs, 1).astype(np.float32)
        return self._input.copy()

    @classmethod
    def draw(cls, generator: np.random.Generator, tasks: int, points: int) -> tuple[FloatArray, FloatArray]:
        """Points of new tasks.

        Args:
            generator: The random generator.
            tasks: Number of tasks, N.
            points: Points of each task, T.

        Returns:
            x and y, (T, N, 1) each.
        """
        amplitude = generator.uniform(*cls.amplitudes, (tasks, 1))
        phase = generator.uniform(*cls.phases, (tasks, 1))
        inputs = generator.uniform(*cls.inputs, (points, tasks, 1)).astype(np.float32)
        return inputs, (amplitude * np.sin(inputs - phase)).astype(np.float32)

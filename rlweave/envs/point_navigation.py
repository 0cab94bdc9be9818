"""Point navigation: the task distribution of Finn et al. 2017, section 5.3."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

FloatArray = npt.NDArray[np.float32]


class PointNavigation(gymnasium.Env[FloatArray, FloatArray]):
    """A point in the plane has to find a goal that it cannot see: each task has its own, in a square of side 1.

    The point starts in the origin, the middle of the square. The observation is its position; an action (2,) in
    [-1, 1] moves it by a tenth of that. The reward is minus the squared distance to the goal. Episodes terminate within
    0.01 of the goal and are truncated after `horizon` steps. The goal stays the same until a reset is given a seed,
    or asks for another one with `options={"new_task": True}`.

    Args:
        horizon: Length of an episode at most.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "new_task": True}  # type: ignore[misc]

    def __init__(self, horizon: int = 100, render_mode: str | None = None) -> None:
        self._horizon, self._step, self.render_mode = horizon, 0, render_mode
        self._goal: npt.NDArray[np.float64] | None = None
        self._position = np.zeros(2)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Puts the point into the origin.

        Args:
            seed: Seeds the goals.
            options: With "new_task" true (or a seed) another goal is drawn.

        Returns:
            The position, and an info with the goal.
        """
        super().reset(seed=seed)
        if self._goal is None or seed is not None or (options or {}).get("new_task"):
            self._goal = self.np_random.uniform(-0.5, 0.5, 2)
        self._step, self._position = 0, np.zeros(2)
        return self._position.astype(np.float32), {"goal": self._goal.copy()}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Moves the point.

        Args:
            action: Direction and speed, (2,), clipped to [-1, 1].

        Returns:
            The position, minus the squared distance, terminated at the goal, truncated, and an empty info.
        """
        assert self._goal is not None, "reset() comes before the first step"
        self._step += 1
        self._position = self._position + 0.1 * np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        squared = float(np.square(self._position - self._goal).sum())
        return self._position.astype(np.float32), -squared, squared < 1e-4, self._step >= self._horizon, {}

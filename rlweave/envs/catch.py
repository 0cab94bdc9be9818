"""Catch: the smallest task that has to be learned from pixels."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsInt

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces


class Catch(gymnasium.Env[npt.NDArray[np.uint8], SupportsInt]):
    """A ball falls one row per step; the paddle on the bottom row has to be below it when it arrives.

    Actions are 0 left, 1 stay, 2 right. The reward is 0 until the ball reaches the bottom row, then +1 (caught) or -1,
    and the episode terminates: every episode takes ``rows - 1`` steps. Observations are images of shape
    (rows, columns, 1), channels last, uint8, black but for the two pixels of ball and paddle (255).

    Args:
        rows: Height in pixels.
        columns: Width in pixels.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]

    def __init__(self, rows: int = 8, columns: int = 8, render_mode: str | None = None) -> None:
        self._rows, self._columns = rows, columns
        self._ball_row = self._ball_column = self._paddle = 0
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0, 255, (rows, columns, 1), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Puts the ball into a random column of the top row, and the paddle in the middle.

        Args:
            seed: Seeds the ball's column.
            options: Not used.

        Returns:
            The observation and an empty info.
        """
        super().reset(seed=seed)
        self._ball_row = 0
        self._ball_column = int(self.np_random.integers(self._columns))
        self._paddle = self._columns // 2
        return self._draw(), {}

    def step(self, action: SupportsInt) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Moves the paddle, then lets the ball fall by a row.

        Args:
            action: 0 left, 1 stay, 2 right.

        Returns:
            Observation, reward, terminated, truncated (never), and an empty info.
        """
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self._columns - 1)
        self._ball_row += 1
        terminated = self._ball_row == self._rows - 1
        reward = 0.0 if not terminated else 1.0 if self._ball_column == self._paddle else -1.0
        return self._draw(), reward, terminated, False, {}

    def render(self) -> str:
        """Returns the image as text, with ``#`` for the bright pixels."""
        return "\n".join("".join("#" if pixel else "." for pixel in row) for row in self._draw()[..., 0])

    def _draw(self) -> npt.NDArray[np.uint8]:
        image = np.zeros((self._rows, self._columns, 1), np.uint8)
        image[self._ball_row, self._ball_column] = 255
        image[self._rows - 1, self._paddle] = 255
        return image

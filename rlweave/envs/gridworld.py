"""A deterministic grid world with known optimal values: the smallest task that a learner can be checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, SupportsInt

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.errors import EnvError, nearest


class GridWorld(gymnasium.Env[Any, Any]):
    """Walk from the start to a goal.

    Cells are ``S`` start, space free, ``H`` hole (-5, terminal), ``F`` fire (-3), ``G`` goal (+1, terminal) and ``W``
    wall. Each other step costs 0.1. A step against a wall or the border stays where it is. Actions are 0 up, 1 right,
    2 down, 3 left. A cell's index is ``column * rows + row``. Rewards and maps follow RLgraph's grid world, with its
    sparse rewards.

    Args:
        world: The name of one of `MAPS`, or the rows of a map.
        one_hot: Whether an observation is a float32 vector with a one at the index, instead of the index.

    Raises:
        EnvError: If there is no such map, or it is not a rectangle of these cells with one start.

    >>> env = GridWorld("2x2")
    >>> env.reset()[0], env.step(2)[:3], env.step(1)[:3]
    (0, (1, -0.1, False), (3, 1.0, True))
    """

    MAPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "2x2": ("SH", " G"),
        "4x4": ("S   ", " H H", "   H", "H  G"),
        "chain": ("G    S  F G",),
    }
    REWARDS: ClassVar[dict[str, float]] = {" ": -0.1, "S": -0.1, "H": -5.0, "F": -3.0, "G": 1.0}

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]

    def __init__(
        self, world: str | Sequence[str] = "4x4", one_hot: bool = False, render_mode: str | None = None
    ) -> None:
        if isinstance(world, str) and world not in self.MAPS:
            raise EnvError("unknown grid world map", received=repr(world), fix=nearest(world, self.MAPS))
        self._map = tuple(self.MAPS[world]) if isinstance(world, str) else tuple(world)
        self.num_rows, self.num_columns = len(self._map), len(self._map[0]) if self._map else 0
        cells = "".join(self._map)
        if len(cells) != self.num_rows * self.num_columns or set(cells) - set(" SHFGW") or cells.count("S") != 1:
            raise EnvError(
                "a grid world map must be a rectangle of the cells ' SHFGW' with one start",
                received=repr(self._map),
                fix="for instance ('SH', ' G')",
            )
        self._start = next((row.index("S"), y) for y, row in enumerate(self._map) if "S" in row)
        self._column, self._row = self._start
        self._one_hot = one_hot
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(4)
        num_cells = self.num_rows * self.num_columns
        self.observation_space = (
            spaces.Box(0.0, 1.0, (num_cells,), np.float32) if one_hot else spaces.Discrete(num_cells)
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes back to the start.

        Args:
            seed: Has no effect, as nothing here is random.
            options: ``{"index": cell}`` starts in another cell.

        Returns:
            The observation and an empty info.
        """
        super().reset(seed=seed)
        self._column, self._row = self._start
        if options and "index" in options:
            self._column, self._row = divmod(int(options["index"]), self.num_rows)
        return self._observe(), {}

    def step(self, action: SupportsInt) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves one cell.

        Args:
            action: 0 up, 1 right, 2 down, 3 left.

        Returns:
            Observation, reward, terminated, truncated (never), and an empty info.
        """
        right, down = ((0, -1), (1, 0), (0, 1), (-1, 0))[int(action)]
        column, row = self._column + right, self._row + down
        inside = 0 <= column < self.num_columns and 0 <= row < self.num_rows
        if inside and self._map[row][column] != "W":
            self._column, self._row = column, row
        cell = self._map[self._row][self._column]
        return self._observe(), self.REWARDS[cell], cell in "HG", False, {}

    def render(self) -> str:
        """Returns the map as text, with an ``X`` where the agent is."""
        rows = [list(row) for row in self._map]
        rows[self._row][self._column] = "X"
        return "\n".join("".join(row) for row in rows)

    def _observe(self) -> Any:
        index = self._column * self.num_rows + self._row
        if not self._one_hot:
            return index
        observation = np.zeros(self.num_rows * self.num_columns, np.float32)
        observation[index] = 1.0
        return observation

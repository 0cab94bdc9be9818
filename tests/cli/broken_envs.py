"""Environments that break, registered when this module is imported: `--env tests.cli.broken_envs:Breaks-v0`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Breaks(gymnasium.Env[Any, Any]):
    """Raises at its third step, or at once when it is given a simulator."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, simulator: str = "") -> None:
        if simulator:
            raise FileNotFoundError(f"no simulator {simulator!r}")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        if self._step == 3:
            raise ValueError("boom")
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Prints(Breaks):
    """Ends before it breaks, and tells what it does."""

    def __init__(self) -> None:
        super().__init__()
        print("made")

    def step(self, action: Any) -> Any:
        print("stepped")
        return np.full(2, action, np.float32), float(action), True, False, {}


if "Breaks-v0" not in gymnasium.registry:
    gymnasium.register("Breaks-v0", Breaks)

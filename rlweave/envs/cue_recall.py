"""Cue recall: the smallest task that cannot be done without memory."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsInt

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlweave.errors import EnvError

Observation = npt.NDArray[np.float32]


class CueRecall(gymnasium.Env[Observation, SupportsInt]):
    """A cue is shown in the first observation only; the last action of the episode has to name it.

    The reward is 1 where the last action equals the cue, else 0; earlier actions do not count. Observations are
    (cues,) floats: a 1 at the cue at first, then zeros (or noise without information). Nothing in the last observation
    shows the cue, so a policy of the present observation alone gets 1 / cues on average.

    Args:
        length: Steps of an episode.
        max_length: Where given, each episode takes a random number of steps from `length` to this.
        cues: How many different cues there are, and actions.
        noise: Largest size of the noise, drawn evenly, that is added to all observations but the first.

    Raises:
        EnvError: A number makes no sense.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]

    def __init__(
        self,
        length: int = 10,
        max_length: int | None = None,
        cues: int = 2,
        noise: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if length < 1 or cues < 2 or noise < 0 or (max_length is not None and max_length < length):
            raise EnvError(
                "cue recall needs length >= 1, max_length >= length, cues >= 2 and noise >= 0",
                received=f"length={length!r}, max_length={max_length!r}, cues={cues!r}, noise={noise!r}",
            )
        self._shortest, self._longest, self._cues, self._noise = length, max_length or length, cues, float(noise)
        self._cue = self._step = 0
        self._length = length
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(cues)
        self.observation_space = spaces.Box(-self._noise, 1.0 + self._noise, (cues,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draws a cue (and a length) and shows the cue.

        Args:
            seed: Seeds cues, lengths and noise.
            options: Not used.

        Returns:
            The observation and an empty info.
        """
        super().reset(seed=seed)
        self._step = 0
        self._cue = int(self.np_random.integers(self._cues))
        self._length = int(self.np_random.integers(self._shortest, self._longest + 1))
        return self._observation(), {}

    def step(self, action: SupportsInt) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Goes on; compares the action with the cue where it is the last one.

        Args:
            action: A cue, 0 to `cues` - 1.

        Returns:
            Observation, reward, terminated, truncated (never), and an empty info.
        """
        self._step += 1
        terminated = self._step == self._length
        reward = float(terminated and int(action) == self._cue)
        return self._observation(), reward, terminated, False, {}

    def render(self) -> str:
        """Returns the cue and the present step as text."""
        return f"cue {self._cue}, step {self._step} of {self._length}"

    def _observation(self) -> Observation:
        if self._step == 0:
            observation = np.zeros(self._cues, np.float32)
            observation[self._cue] = 1.0
            return observation
        if not self._noise:
            return np.zeros(self._cues, np.float32)
        return self.np_random.uniform(-self._noise, self._noise, self._cues).astype(np.float32)

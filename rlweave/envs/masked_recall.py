"""Masked recall: the smallest task that needs a memory, a mask of actions, and several leaves of observations."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsInt

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.errors import EnvError

Observation = dict[str, Any]

NO_QUESTION = 2


class MaskedRecall(gymnasium.Env[Observation, SupportsInt]):
    """Two different cues are shown at first; the last observation asks for one of them, which the last action names.

    The reward is 1 where the last action names the cue that was asked for, else 0. Some actions, others at each step,
    are not allowed: taking one ends the episode without a reward. At the last step both cues are allowed.

    Observations are a dict of `action_mask`, 1 where an action is allowed, (cues,); `left` and `right`, the cues, or
    `cues` where none is shown; `question`, 0 for the left cue, 1 for the right one, 2 where none is asked for.

    Who does without one of these cannot get 1 on average, however it plays:

    * without memory `1 / allowed`: nothing but the mask tells the cues from others when they are asked for;
    * without the mask `(allowed / cues) ** (length - 1)`;
    * without the question `1 / 2`;
    * without one of the cues `1 / 2 + 1 / (2 * (allowed - 1))`.

    Args:
        length: Steps of an episode, at least 2.
        cues: How many different cues there are, and actions.
        allowed: How many actions are allowed at each step.

    Raises:
        EnvError: A number makes no sense.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]

    def __init__(self, length: int = 3, cues: int = 4, allowed: int = 3, render_mode: str | None = None) -> None:
        if length < 2 or not 3 <= allowed <= cues:
            raise EnvError(
                "masked recall needs length >= 2 and 3 <= allowed <= cues",
                received=f"length={length!r}, cues={cues!r}, allowed={allowed!r}",
                fix="length=3, cues=4, allowed=3, say",
            )
        self._length, self._cues, self._allowed = length, cues, allowed
        self._step = self._question = 0
        self._shown = (0, 1)
        self._mask = np.ones(cues, np.int8)
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(cues)
        self.observation_space = spaces.Dict(
            action_mask=spaces.MultiBinary(cues),
            left=spaces.Discrete(cues + 1),
            question=spaces.Discrete(3),
            right=spaces.Discrete(cues + 1),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draws two cues and a question, and shows the cues.

        Args:
            seed: Seeds cues, questions and masks.
            options: Not used.

        Returns:
            The observation and an empty info.
        """
        super().reset(seed=seed)
        self._step = 0
        left, right = self.np_random.choice(self._cues, 2, replace=False)
        self._shown, self._question = (int(left), int(right)), int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action: SupportsInt) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Goes on; ends where the action is not allowed, or the last one.

        Args:
            action: A cue, 0 to `cues` - 1.

        Returns:
            Observation, reward, terminated, truncated (never), and an empty info.
        """
        self._step += 1
        is_allowed, is_last = bool(self._mask[int(action)]), self._step == self._length
        reward = float(is_last and int(action) == self._shown[self._question])
        return self._observe(), reward, is_last or not is_allowed, False, {}

    def render(self) -> str:
        """Returns the cues, the question and the present step as text."""
        side = ("left", "right")[self._question]
        return f"cues {self._shown}, {side} one asked for, step {self._step} of {self._length}"

    def _observe(self) -> Observation:
        """Draws the next mask; shows the cues at first and the question at last."""
        asks = self._step == self._length - 1
        certain = list(self._shown) if asks else []
        others = np.setdiff1d(np.arange(self._cues), certain)
        drawn = self.np_random.choice(others, self._allowed - len(certain), replace=False)
        self._mask = np.zeros(self._cues, np.int8)
        self._mask[[*certain, *drawn]] = 1
        left, right = (self._cues, self._cues) if self._step else self._shown
        question = self._question if asks else NO_QUESTION
        # the arrays of an observation are the receiver's
        return {"action_mask": self._mask.copy(), "left": left, "question": question, "right": right}

"""Environments with text: a wrapper that replaces each text by the numbers of its words."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

from rlweave.spaces.gymnasium_spaces import Tokens
from rlweave.spaces.text_hashing import check_hashing, hash_text


class TextHashing(NamedTuple):
    """How the text of observations becomes numbers; see `rlweave.components.hash_text`.

    Attributes:
        tokens: How many words of a text are kept.
        buckets: How many numbers words are hashed to, 0 ("no word") included.
    """

    tokens: int = 32
    buckets: int = 4096


def has_text(space: gymnasium.Space[Any] | None) -> bool:
    """Whether a space has text in it, at any depth."""
    if isinstance(space, spaces.Dict):
        return any(has_text(child) for child in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return any(has_text(child) for child in space.spaces)
    return isinstance(space, spaces.Text)


class HashedText(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations with each text as the numbers of its words; all else stays as it is.

    Args:
        env: The environment.
        hashing: Numbers of words and hashes.

    Raises:
        SpaceError: Sizes that are too small.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], hashing: TextHashing) -> None:
        super().__init__(env)
        check_hashing(*hashing, where="text of observations")
        self.hashing = hashing
        self.observation_space = self._hashed_space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        """An observation with numbers in place of text; what does not fit its space is left for the boundary."""
        return self._hashed(self.env.observation_space, observation)

    def _hashed_space(self, space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
        if isinstance(space, spaces.Dict):
            return spaces.Dict({key: self._hashed_space(child) for key, child in space.spaces.items()})
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._hashed_space(child) for child in space.spaces])
        if isinstance(space, spaces.Text):
            return Tokens(self.hashing.tokens, self.hashing.buckets)
        return space

    def _hashed(self, space: gymnasium.Space[Any], value: Any) -> Any:
        if isinstance(space, spaces.Dict) and isinstance(value, dict):
            return {k: self._hashed(space[k], child) if k in space.spaces else child for k, child in value.items()}
        if isinstance(space, spaces.Tuple) and isinstance(value, tuple | list) and len(value) == len(space.spaces):
            return tuple(self._hashed(child, item) for child, item in zip(space.spaces, value, strict=True))
        if isinstance(space, spaces.Text) and isinstance(value, str):
            return hash_text(value, *self.hashing)
        return value

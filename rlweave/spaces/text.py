"""Text, which lives on the host only."""

from __future__ import annotations

import string
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from rlweave.errors import SpaceError
from rlweave.spaces.box import Axis, Box
from rlweave.spaces.space import Rank, Space

_SAMPLE_CHARACTERS = string.ascii_letters + string.digits
_SAMPLE_LENGTH = 8


class TextBox(Box):
    """Text: NumPy object arrays of ``str``, or a plain ``str`` where there is neither shape nor rank.

    Args:
        max_length: The most characters, or None.
        min_length: The fewest characters.
        charset: The characters that may occur, or None for all.
        shape: The feature shape.
        add_batch_rank: Whether there is a batch rank; a number fixes its size.
        add_time_rank: Whether there is a time rank; a number fixes its size.

    Raises:
        SpaceError: When the lengths cross, or the characters do not allow the length asked for.

    >>> TextBox(10, add_batch_rank=True)
    TextBox((B,) object of 0..10 characters)
    """

    DTYPES = ("object",)
    JSON_FIELDS = frozenset({"shape", "dtype", "batch", "time", "max_length", "min_length", "charset"})

    max_length: int | None
    min_length: int
    charset: str | None

    def __init__(
        self,
        max_length: int | None = None,
        min_length: int = 0,
        charset: str | None = None,
        shape: Axis | Sequence[Axis] = (),
        add_batch_rank: Rank = False,
        add_time_rank: Rank = False,
    ) -> None:
        if min_length < 0 or (max_length is not None and max_length < min_length):
            raise SpaceError(
                "The lengths of a TextBox cross.",
                received=f"min_length={min_length}, max_length={max_length}",
                fix="0 <= min_length <= max_length",
            )
        if charset == "" and min_length > 0:
            raise SpaceError(
                "A TextBox without characters holds the empty text only.",
                received=f"charset='', min_length={min_length}",
                fix="min_length=0, charset=None for all characters, or some characters",
            )
        characters = None if charset is None else "".join(sorted(set(charset)))
        self._set_up(
            shape,
            "object",
            add_batch_rank,
            add_time_rank,
            None,
            max_length=max_length,
            min_length=min_length,
            charset=characters,
        )

    @property
    def flat_dim(self) -> int:
        """Text has no numbers.

        Raises:
            SpaceError: Always.
        """
        raise SpaceError(
            "Text has no numeric features.", where=repr(self), fix="encode it on the host before it enters a graph"
        )

    def _sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        characters = list(_SAMPLE_CHARACTERS if self.charset is None else self.charset)
        longest = self.min_length + _SAMPLE_LENGTH if self.max_length is None else self.max_length
        texts = self._zeros(shape)
        for index in np.ndindex(shape):
            length = int(rng.integers(self.min_length, longest, endpoint=True)) if characters else 0
            texts[index] = "".join(rng.choice(characters, length)) if length else ""
        return texts

    def _zeros(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, "", dtype=object)

    def _why_not(self, value: Any, path: str, bound: dict[str, tuple[int, str]]) -> str | None:
        # A str is to an object array what a NumPy scalar is to a numeric one: its only element.
        array = np.array(value, dtype=object) if isinstance(value, str) else value
        return super()._why_not(array, path, bound)

    def _why_not_values(self, array: np.ndarray) -> str | None:
        for index, text in np.ndenumerate(array):
            where = f" at index {index}" if index else ""
            if not isinstance(text, str):
                return f"holds a {type(text).__name__}{where}, not a str"
            if len(text) < self.min_length or (self.max_length is not None and len(text) > self.max_length):
                return f"holds {len(text)} characters{where}, outside {self._lengths()}"
            foreign = sorted(set(text) - set(self.charset)) if self.charset is not None else []
            if foreign:
                return f"holds characters{where} that are not in the charset: {foreign}"
        return None

    def _identity(self) -> Hashable:
        return super()._identity(), self.max_length, self.min_length, self.charset

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data, from which `from_json` makes an equal space."""
        return super().to_json() | {
            "max_length": self.max_length,
            "min_length": self.min_length,
            "charset": self.charset,
        }

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        axes = cls._axes_from_json(form)
        cls._dtype_name(form.get("dtype", "object"))
        return cls(form.get("max_length"), form.get("min_length", 0), form.get("charset"), *axes)

    def _lengths(self) -> str:
        return f"{self.min_length}..{'any' if self.max_length is None else self.max_length}"

    def _details(self) -> str:
        return f" of {self._lengths()} characters"

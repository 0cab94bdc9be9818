"""Ranges of integers, and the error for one that lies outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.errors import EnvError
from rlweave.spaces import Box, IntBox


class OutOfRange(EnvError):  # noqa: N818 (the field's term)
    """An integer outside of its space.

    Attributes:
        row: Its row, if a whole batch was checked.
    """

    row: int | None = None


def integer_bounds(space: Box) -> tuple[tuple[Any, Any] | None, bool]:
    """Lowest and highest value of a leaf of integers or flags, and whether its dtype holds others, too."""
    if not isinstance(space, IntBox):
        return (0, 1), False
    low, high = _shortest(space.low), _shortest(space.last)
    limits = np.iinfo(space.dtype)
    return (low, high), bool(np.any(low > limits.min) or np.any(high < limits.max))


def _shortest(bound: npt.NDArray[Any]) -> Any:
    """A bound as a number, if it is the same in all dimensions."""
    return bound.flat[0].item() if bound.size and bool((bound == bound.flat[0]).all()) else np.array(bound)

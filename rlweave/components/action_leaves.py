"""What an action space means to a policy: one record per leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.errors import SpaceError
from rlweave.spaces import BoolBox, FloatBox, IntBox, Space

MAX_ACTIONS = 65536
"""More categories than this in one dimension are refused."""


@dataclass(frozen=True)
class ActionLeaf:
    """One leaf of an action space.

    Args:
        path: Its path in the space.
        kind: "categorical" (integers), "bernoulli" (booleans) or "normal" (floats).
        shape: Its feature shape.
        low: Lowest value by dimension (flat), -inf where there is none; empty for booleans.
        high: Highest value by dimension (flat), included; inf where there is none; empty for booleans.

    Attributes:
        size: Number of action components.
        categories: Length of the last axis of Q-values (and of logits of integers): the most categories of any
            dimension; 2 for booleans, 0 for floats.
        allowed: Which categories each dimension has, bool (*shape, categories); None for all of them.
        counts: How many categories each dimension has, float32 (*shape, 1).
        lower: Lower bounds: a number when all dimensions share it, else an array of the leaf's shape.
        upper: Upper bounds (included), likewise.
        squashable: Whether a dimension is bounded on both sides: one bool, or an array of the leaf's shape.
        center: Middle of each dimension, 0 where it is not bounded on both sides; likewise.
        half_width: Half the width of each dimension, 1 where it is not bounded on both sides; likewise.
        divisor: The same with 1 instead of 0: a dimension with low == high holds no information.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    # Made once, and not at first use: graph functions read them, and torch.compile enters no lazy property.
    size: int = field(init=False, repr=False, compare=False)
    categories: int = field(init=False, repr=False, compare=False, default=0)
    allowed: np.ndarray | None = field(init=False, repr=False, compare=False, default=None)
    counts: Any = field(init=False, repr=False, compare=False, default=None)
    lower: Any = field(init=False, repr=False, compare=False, default=None)
    upper: Any = field(init=False, repr=False, compare=False, default=None)
    squashable: Any = field(init=False, repr=False, compare=False, default=False)
    center: Any = field(init=False, repr=False, compare=False, default=None)
    half_width: Any = field(init=False, repr=False, compare=False, default=None)
    divisor: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        derived: dict[str, Any] = {"size": math.prod(self.shape)}
        if self.kind == "bernoulli":
            derived["categories"] = 2
        elif self.kind == "categorical":
            derived.update(self._of_integers())
        else:
            derived.update(self._of_floats())
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _of_integers(self) -> dict[str, Any]:
        sizes = np.asarray([last - first + 1 for first, last in zip(self.low, self.high, strict=True)], np.int64)
        most = int(sizes.max(initial=1))
        allowed = (np.arange(most) < sizes[:, None]).reshape((*self.shape, most))
        return {
            "categories": most,
            "allowed": None if np.all(allowed) else allowed,
            "counts": sizes.astype(np.float32).reshape((*self.shape, 1)),
            "lower": self._compact(np.asarray(self.low, np.int32)),
            "upper": self._compact(np.asarray(self.high, np.int32)),
        }

    def _of_floats(self) -> dict[str, Any]:
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        first, last = np.where(bounded, low, 0).astype(np.float64), np.where(bounded, high, 0).astype(np.float64)
        half = np.where(bounded, (last - first) / 2, 1)
        return {
            "lower": self._compact(low),
            "upper": self._compact(high),
            "squashable": self._compact(bounded),
            "center": self._compact(np.asarray((first + last) / 2, np.float32)),
            "half_width": self._compact(np.asarray(half, np.float32)),
            "divisor": self._compact(np.asarray(np.where(half > 0, half, 1), np.float32)),
        }

    def _compact(self, values: np.ndarray) -> Any:
        """A number when all are equal, else the leaf's shape."""
        if values.size and np.all(values == values[0]):
            return values[0].item()
        return values.reshape(self.shape)


def action_leaves(space: Space | Mapping[str, Any], where: str, discrete_only: bool = False) -> tuple[ActionLeaf, ...]:
    """The leaves of an action space in canonical order.

    Args:
        space: Any nested space of integers with a range, booleans and floats, or its JSON form.
        where: Who asks, for errors.
        discrete_only: Refuse floats (Q-values have to be listed).

    Raises:
        SpaceError: No leaf at all, text, integers without a range, floats where they cannot be.
    """
    space = as_space(space)
    leaves = []
    for path, leaf in space.flatten().items():
        at = f"{where}, action {path!r}" if path else where
        if isinstance(leaf, BoolBox):
            leaves.append(ActionLeaf(path, "bernoulli", leaf.feature_shape))
        elif isinstance(leaf, IntBox):
            low, last = leaf.low.astype(object).reshape(-1), leaf.last.astype(object).reshape(-1)
            if not np.all(leaf.bounded) or any(b - a >= MAX_ACTIONS for a, b in zip(low, last, strict=True)):
                raise SpaceError(
                    f"an integer action needs a range of at most {MAX_ACTIONS} values",
                    where=at,
                    received=repr(leaf),
                    fix="IntBox(n) is {0..n-1}",
                )
            first, final = tuple(int(n) for n in low), tuple(int(n) for n in last)
            leaves.append(ActionLeaf(path, "categorical", leaf.feature_shape, first, final))
        elif isinstance(leaf, FloatBox) and not discrete_only:
            bottom, top = tuple(float(x) for x in leaf.low.flat), tuple(float(x) for x in leaf.high.flat)
            leaves.append(ActionLeaf(path, "normal", leaf.feature_shape, bottom, top))
        else:
            raise SpaceError(
                "Q-values need actions that can be counted" if discrete_only else "no policy gives such an action",
                where=at,
                received=repr(leaf),
                fix="use IntBox or BoolBox actions, or an algorithm for continuous ones"
                if discrete_only
                else "use IntBox, BoolBox or FloatBox",
            )
    if not leaves:
        raise SpaceError("an action space without actions", where=where, received=repr(space), fix="IntBox(n), say")
    return tuple(leaves)


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """A space from itself or from its JSON form, without ranks."""
    return (Space.from_json(space) if isinstance(space, Mapping) else space).strip_ranks()

"""What an action space means to a policy: one record per leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
        low: Lowest value by dimension (flat), -inf where there is none.
        high: Highest value by dimension (flat), included; inf where there is none.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Number of action components."""
        return math.prod(self.shape)

    @cached_property
    def categories(self) -> int:
        """Length of the last axis of Q-values (and of logits of integers): the most categories of any dimension."""
        if self.kind == "bernoulli":
            return 2
        return int(max((last - first for first, last in zip(self.low, self.high, strict=True)), default=0)) + 1

    @cached_property
    def allowed(self) -> np.ndarray | None:
        """Which categories each dimension has, bool (*shape, categories); None for all of them."""
        if self.kind != "categorical":
            return None
        sizes = np.asarray([last - first + 1 for first, last in zip(self.low, self.high, strict=True)], np.int64)
        if np.all(sizes == self.categories):
            return None
        return (np.arange(self.categories) < sizes[:, None]).reshape((*self.shape, self.categories))

    @cached_property
    def lower(self) -> Any:
        """Lower bounds: a number when all dimensions share it, else an array of the leaf's shape."""
        return self._bound(self.low)

    @cached_property
    def upper(self) -> Any:
        """Upper bounds (included), likewise."""
        return self._bound(self.high)

    @cached_property
    def squashable(self) -> Any:
        """Whether a dimension is bounded on both sides: one bool, or an array of the leaf's shape."""
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        return bool(bounded.all()) if bounded.all() or not bounded.any() else bounded.reshape(self.shape)

    @cached_property
    def center(self) -> np.ndarray:
        """Middle of each dimension, 0 where it is not bounded on both sides; float32 of the leaf's shape."""
        low, high = self._finite()
        return np.asarray((low + high) / 2, np.float32).reshape(self.shape)

    @cached_property
    def half_width(self) -> np.ndarray:
        """Half the width of each dimension, 1 where it is not bounded on both sides; float32 of the leaf's shape."""
        low, high = self._finite()
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        return np.asarray(np.where(bounded, (high - low) / 2, 1.0), np.float32).reshape(self.shape)

    def _finite(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        return np.where(bounded, low, 0.0), np.where(bounded, high, 0.0)

    def _bound(self, values: tuple[float, ...]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        return np.asarray(values, np.float32 if self.kind == "normal" else np.int32).reshape(self.shape)


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

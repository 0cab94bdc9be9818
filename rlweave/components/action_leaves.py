"""What an action space means to a policy: one record per leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.errors import SpaceError
from rlweave.spaces import BoolBox, Box, FloatBox, IntBox, Space

MAX_ACTIONS = 65536
"""More categories than this in one dimension are refused."""

COUNTABLE = frozenset({"categorical", "bernoulli"})
"""Kinds of leaves that Q-values can list."""

FLOATS = frozenset({"normal"})
"""The kind of leaves that gradients with respect to actions need."""

ANY_KIND = COUNTABLE | FLOATS

_FIXES = {
    ANY_KIND: ("no policy gives such an action", "use IntBox, BoolBox or FloatBox"),
    COUNTABLE: (
        "Q-values need actions that can be counted",
        "use IntBox or BoolBox actions, or an algorithm for any, such as PPO",
    ),
    FLOATS: ("this policy gives floats only", "use FloatBox actions, or an algorithm for any, such as PPO"),
}

_KINDS: dict[type[Box], str] = {BoolBox: "bernoulli", IntBox: "categorical", FloatBox: "normal"}

OWN_DTYPES = {"categorical": "int32", "bernoulli": "bool", "normal": "float32"}
"""What a policy's own numbers are, by kind of leaf."""

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class ActionLeaf:
    """One leaf of an action space, and what stands between the policy's own numbers and the environment's.

    Of integers the policy has indices from 0, of booleans booleans. Of floats it has numbers around 0: a dimension
    that is bounded on both sides is [-1, 1], whatever its scale and offset; of any other, 0 is the allowed number that
    is nearest to 0, and the scale stays. `to_environment` (in `rlweave.components.action_boundary`) goes from there.

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
        bounded: Whether a dimension is bounded on both sides: one bool, or an array of the leaf's shape.
        own_lower: Lower bounds of the policy's own numbers of floats, likewise; `own_upper` their upper bounds.
        center: What the policy's 0 is to the environment, likewise.
        half_width: What the policy's 1 is, from there; likewise.
        divisor: The same with 1 instead of 0: a dimension with low == high holds no information.
        rounds: Whether rounding may carry `center + half_width * x` over a bound.
        changes: Whether the environment's actions are others than the policy's.
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
    bounded: Any = field(init=False, repr=False, compare=False, default=False)
    own_lower: Any = field(init=False, repr=False, compare=False, default=None)
    own_upper: Any = field(init=False, repr=False, compare=False, default=None)
    center: Any = field(init=False, repr=False, compare=False, default=None)
    half_width: Any = field(init=False, repr=False, compare=False, default=None)
    divisor: Any = field(init=False, repr=False, compare=False, default=None)
    rounds: bool = field(init=False, repr=False, compare=False, default=False)
    changes: bool = field(init=False, repr=False, compare=False, default=False)

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

    @property
    def own_space(self) -> Box:
        """Space of the policy's own numbers, without ranks."""
        if self.kind == "bernoulli":
            return BoolBox(self.shape)
        if self.kind == "normal":
            return FloatBox(shape=self.shape)
        return IntBox(high=self.counts[..., 0].astype(np.int64), shape=self.shape)

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
            "changes": any(self.low),
        }

    def _of_floats(self) -> dict[str, Any]:
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        # in float64, as the width of a box may be more than float32 holds
        wide_low, wide_high = low.astype(np.float64), high.astype(np.float64)
        first, last = np.where(bounded, wide_low, 0.0), np.where(bounded, wide_high, 0.0)
        center = np.where(bounded, (first + last) / 2, np.clip(0.0, wide_low, wide_high)).astype(np.float32)
        half = np.where(bounded, (last - first) / 2, 1.0).astype(np.float32)
        own_low = np.where(bounded, -1.0, wide_low - center).astype(np.float32)
        own_high = np.where(bounded, 1.0, wide_high - center).astype(np.float32)
        with np.errstate(over="ignore"):
            over = (center + own_low * half < low) | (center + own_high * half > high)
        return {
            "lower": self._compact(low),
            "upper": self._compact(high),
            "bounded": self._compact(bounded),
            "own_lower": self._compact(own_low),
            "own_upper": self._compact(own_high),
            "center": self._compact(center),
            "half_width": self._compact(half),
            "divisor": self._compact(np.where(half > 0, half, np.float32(1))),
            "rounds": bool(np.any(over)),
            "changes": bool(np.any(np.isfinite(low) | np.isfinite(high))),
        }

    def _compact(self, values: np.ndarray) -> Any:
        """A number when all are equal, else the leaf's shape."""
        if values.size and np.all(values == values[0]):
            return values[0].item()
        return values.reshape(self.shape)


def action_leaves(
    space: Space | Mapping[str, Any], where: str, kinds: frozenset[str] = ANY_KIND
) -> tuple[ActionLeaf, ...]:
    """The leaves of an action space in canonical order.

    Args:
        space: Any nested space of integers with a range, booleans and floats, or its JSON form.
        where: The component or agent, for errors.
        kinds: Which kinds of leaves there may be: `ANY_KIND`, `COUNTABLE` or `FLOATS`.

    Raises:
        SpaceError: No leaf at all, text, integers without a range, a leaf of another kind.
    """
    space = as_space(space)
    leaves = []
    for path, leaf in space.flatten().items():
        at = f"{where}, action {path!r}" if path else f"{where}, action"
        kind = next((kind for box, kind in _KINDS.items() if isinstance(leaf, box)), None)
        if kind not in kinds:
            what, fix = _FIXES[ANY_KIND if kind is None else kinds]
            raise SpaceError(what, where=at, received=repr(leaf), fix=fix)
        leaves.append(ActionLeaf(path, kind, leaf.feature_shape, *_bounds(leaf, at)))
    if not leaves:
        raise SpaceError(
            "an action space without actions", where=f"{where}, action", received=repr(space), fix="IntBox(n), say"
        )
    if kinds == COUNTABLE and not any(leaf.size for leaf in leaves):
        raise SpaceError(
            "Q-values need an action with at least one component",
            where=f"{where}, action {leaves[0].path!r}" if leaves[0].path else f"{where}, action",
            received=repr(space),
            fix="IntBox(n), say, or an algorithm for any, such as PPO",
        )
    return tuple(leaves)


def _bounds(leaf: Box, at: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lowest and highest value by dimension; two empty tuples for booleans.

    Raises:
        SpaceError: Integers that are too many to list, or beyond int32.
    """
    if isinstance(leaf, FloatBox):
        return tuple(float(x) for x in leaf.low.flat), tuple(float(x) for x in leaf.high.flat)
    if not isinstance(leaf, IntBox):
        return (), ()
    low, last = leaf.low.astype(object).reshape(-1), leaf.last.astype(object).reshape(-1)
    if not np.all(leaf.bounded) or any(b - a >= MAX_ACTIONS for a, b in zip(low, last, strict=True)):
        raise SpaceError(
            f"an integer action needs a range of at most {MAX_ACTIONS} values",
            where=at,
            received=repr(leaf),
            fix="IntBox(n) is {0..n-1}",
        )
    if any(a < _INT32.min or b > _INT32.max for a, b in zip(low, last, strict=True)):
        raise SpaceError(
            "an integer action lies outside of int32",
            where=at,
            received=repr(leaf),
            fix="count from 0, IntBox(n), and add the offset in the environment, as Discrete(n, start) does",
        )
    return tuple(int(n) for n in low), tuple(int(n) for n in last)


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """A space from itself or from its JSON form, without ranks."""
    return (Space.from_json(space) if isinstance(space, Mapping) else space).strip_ranks()

"""Why a value does not lie in its Gymnasium space: leaf by leaf, with the element and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.testing.checks.environments.values import below, is_array, shown


class Misfit(NamedTuple):
    """A leaf that does not lie in its space.

    Attributes:
        path: Of the leaf.
        kind: What is wrong: "structure", "type", "dtype", "shape", "finite" or "bounds".
        seen: What was found there, and what was declared.
        fix: What to do about it.
    """

    path: str
    kind: str
    seen: str
    fix: str


def misfits(space: gymnasium.Space[Any], value: Any, path: str = "") -> Iterator[Misfit]:
    """Yields what is wrong with a value of a space, at most one thing for each leaf."""
    if isinstance(space, spaces.Dict):
        yield from _of_dict(space, value, path)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            yield Misfit(path, "structure", f"{_kind(value)}, where a tuple of {len(space.spaces)} is declared", _FIT)
        else:
            for index, child in enumerate(space.spaces):
                yield from misfits(child, value[index], below(path, index))
    elif isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        found = _of_array(space, value, path)
        yield from () if found is None else (found,)
    elif isinstance(space, spaces.Discrete):
        found = _of_discrete(space, value, path)
        yield from () if found is None else (found,)
    elif not space.contains(value):
        yield Misfit(path, "bounds", f"{_kind(value)}, which does not lie in {space}", _FIT)


_FIT = "return what the space declares, or declare what is returned"


def _of_dict(space: spaces.Dict, value: Any, path: str) -> Iterator[Misfit]:
    if not isinstance(value, Mapping):
        keys = ", ".join(map(repr, space.spaces))
        yield Misfit(path, "structure", f"{_kind(value)}, where a dict with the keys {keys} is declared", _FIT)
        return
    missing = [key for key in space.spaces if key not in value]
    added = [key for key in value if key not in space.spaces]
    if missing:
        yield Misfit(path, "structure", f"the key {missing[0]!r} is missing", f"return {missing[0]!r} at each step")
    if added:
        fix = f"declare {added[0]!r} in the space, or leave it out"
        yield Misfit(path, "structure", f"the key {added[0]!r} is not declared", fix)
    for key, child in space.spaces.items():
        if key in value:
            yield from misfits(child, value[key], below(path, key))


def _of_discrete(space: spaces.Discrete, value: Any, path: str) -> Misfit | None:
    array = np.asarray(value) if isinstance(value, (int, np.generic)) or is_array(value) else None
    if array is None or isinstance(value, bool) or array.dtype.kind not in "iu" or array.shape != ():
        fix = "return int(value)"
        return Misfit(path, "type", f"{_kind(value)}, where a whole number is declared", fix)
    low, high = int(space.start), int(space.start + space.n - 1)
    if low <= int(array) <= high:
        return None
    fix = f"{space} holds {low} to {high}" + (f": add start={low} to an index from 0" if low else ": count from 0")
    return Misfit(path, "bounds", f"{int(array)}, where {low} to {high} is declared", fix)


def _of_array(space: gymnasium.Space[Any], value: Any, path: str) -> Misfit | None:
    declared = np.dtype(space.dtype)
    if not is_array(value) and not (isinstance(value, np.generic) and space.shape == ()):
        fix = f"return np.array(..., np.{declared})"
        return Misfit(path, "type", f"{_kind(value)}, where an array of {declared} is declared", fix)
    array = np.asarray(value)
    if array.shape != space.shape:
        return Misfit(path, "shape", f"shape {array.shape}, where {space.shape} is declared", _FIT)
    if isinstance(space, spaces.MultiBinary):
        bounds = (np.zeros(array.shape), np.ones(array.shape))
    elif isinstance(space, spaces.MultiDiscrete):
        bounds = (space.start, space.start + space.nvec - 1)
    else:
        assert isinstance(space, spaces.Box)
        bounds = (space.low, space.high)
    if isinstance(space, spaces.Box) and not np.can_cast(array.dtype, declared):
        return Misfit(path, "dtype", f"dtype {array.dtype}, where {declared} is declared", _dtype_fix(array, declared))
    if array.dtype.kind not in ("biuf" if declared.kind == "f" else "biu"):
        return Misfit(path, "dtype", f"dtype {array.dtype}, where whole numbers are declared", f".astype({declared})")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        index = _first(~np.isfinite(array))
        fix = "look for a division by zero, a root or a logarithm of a number below zero, or a simulator that diverges"
        return Misfit(path, "finite", f"{array[index]} at {list(index)}", fix)
    outside = (array < bounds[0]) | (array > bounds[1])
    if not outside.any():
        return None
    index = _first(outside)
    low, high = (np.broadcast_to(bound, array.shape)[index] for bound in bounds)
    fix = "widen the bounds of the space to what can happen, or clip the value; look for an overflow if it is far off"
    return Misfit(path, "bounds", f"{array[index]} at {list(index)}, where {low} to {high} is declared", fix)


def _dtype_fix(array: Any, declared: np.dtype[Any]) -> str:
    if declared.kind in "biu" and array.dtype.kind == "f":
        return f"declare a box of float32: numbers after the point are lost in {declared}"
    return f"return value.astype(np.{declared}): NumPy computes in {array.dtype} unless it is told otherwise"


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _kind(value: Any) -> str:
    if is_array(value):
        return f"an array of shape {np.shape(value)} and dtype {np.asarray(value).dtype}"
    return f"{type(value).__name__} {shown(value)}"

"""Gymnasium's spaces as strict JSON, so that who uses a policy elsewhere knows what its environment gave and took.

rlweave's own spaces (`Space.to_json`) are what is computed with: narrower numbers, indices from 0. These are the
environment's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.gymnasium_spaces import Tokens


def gymnasium_to_json(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """A space of Gymnasium as plain data.

    Raises:
        SpaceError: For a kind of space that rlweave does not know.

    >>> gymnasium_to_json(gym.Discrete(3, start=-1))
    {'type': 'Discrete', 'n': 3, 'start': -1}
    >>> gymnasium_to_json(gym.Box(0, np.inf, (2,), np.float64))
    {'type': 'Box', 'shape': [2], 'dtype': 'float64', 'low': 0.0, 'high': 'inf'}
    """
    if isinstance(space, gym.Dict):
        return {"type": "Dict", "spaces": {key: gymnasium_to_json(child) for key, child in space.spaces.items()}}
    if isinstance(space, gym.Tuple):
        return {"type": "Tuple", "spaces": [gymnasium_to_json(child) for child in space.spaces]}
    if isinstance(space, Tokens):
        return {"type": "Tokens", "length": int(space.shape[0]), "number": space.number}
    if isinstance(space, gym.Box):
        shape, dtype = [int(size) for size in space.shape], np.dtype(space.dtype).name
        return {"type": "Box", "shape": shape, "dtype": dtype, "low": _bound(space.low), "high": _bound(space.high)}
    if isinstance(space, gym.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
    if isinstance(space, gym.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else [int(size) for size in space.n]}
    if isinstance(space, gym.Text):
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        return {"type": "Text", **lengths, "charset": space.characters}
    raise SpaceError("a Gymnasium space of this kind has no JSON form", received=repr(space))


def _bound(bound: np.ndarray) -> Any:
    """One number where all are equal; infinity as text, as JSON has none."""
    flat = bound.ravel().tolist()
    if not flat or all(value == flat[0] for value in flat):
        return _number(flat[0]) if flat else 0
    return _nested(bound.tolist())


def _nested(value: Any) -> Any:
    return [_nested(item) for item in value] if isinstance(value, list) else _number(value)


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def gymnasium_from_json(form: Mapping[str, Any]) -> gymnasium.Space[Any]:
    """The space that `gymnasium_to_json` wrote.

    Raises:
        SpaceError: When the data describes no space.

    >>> gymnasium_from_json({"type": "Discrete", "n": 3, "start": -1})
    Discrete(3, start=-1)
    """
    name = form.get("type")
    if name not in _MAKERS:
        raise SpaceError("a Gymnasium space in JSON has an unknown type", received=repr(name),
                         fix=nearest(str(name), _MAKERS))  # fmt: skip
    try:
        return _MAKERS[name](form)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise SpaceError(f"a Gymnasium space in JSON is malformed ({error!r})", received=repr(dict(form))) from error


def _box(form: Mapping[str, Any]) -> gym.Box:
    dtype, shape = np.dtype(form["dtype"]), tuple(form["shape"])
    # Python's integers first: bounds of 64 bits do not survive a float
    low, high = (np.broadcast_to(np.array(_parsed(form[key]), dtype), shape).copy() for key in ("low", "high"))
    return gym.Box(low, high, shape, dtype.type)


def _parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [_parsed(item) for item in value]
    return float(value) if isinstance(value, str) else value


_MAKERS: dict[str, Any] = {
    "Dict": lambda form: gym.Dict({key: gymnasium_from_json(child) for key, child in form["spaces"].items()}),
    "Tuple": lambda form: gym.Tuple([gymnasium_from_json(child) for child in form["spaces"]]),
    "Tokens": lambda form: Tokens(form["length"], form["number"]),
    "Box": _box,
    "Discrete": lambda form: gym.Discrete(form["n"], start=form["start"]),
    "MultiDiscrete": lambda form: gym.MultiDiscrete(form["nvec"], start=form["start"]),
    "MultiBinary": lambda form: gym.MultiBinary(form["n"]),
    "Text": lambda form: gym.Text(form["max_length"], min_length=form["min_length"], charset=form["charset"]),
}

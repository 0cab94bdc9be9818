"""Values of Gymnasium's spaces from JSON, checked leaf by leaf, and to JSON."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym

from rlweave.errors import SpaceError
from rlweave.spaces.gymnasium_spaces import Tokens
from rlweave.spaces.space import join_path
from rlweave.tree import tree_map


def value_from_json(space: gymnasium.Space[Any], data: Any, path: str = "observation") -> Any:
    """One value of a space from plain data.

    Args:
        space: The space.
        data: Objects for Dict, lists for Tuple and arrays, numbers, and text.
        path: Its name in errors.

    Raises:
        SpaceError: It does not have the form of the space; names the leaf.
    """
    if isinstance(space, gym.Dict):
        if not isinstance(data, Mapping) or data.keys() != space.spaces.keys():
            raise _wrong("an object is expected here", path, data, f"keys {sorted(space.spaces)}")
        return {key: value_from_json(child, data[key], join_path(path, key)) for key, child in space.spaces.items()}
    if isinstance(space, gym.Tuple):
        if not isinstance(data, list) or len(data) != len(space.spaces):
            raise _wrong("a list is expected here", path, data, f"{len(space.spaces)} entries")
        pairs = enumerate(zip(space.spaces, data, strict=True))
        return tuple(value_from_json(child, item, join_path(path, index)) for index, (child, item) in pairs)
    if isinstance(data, str) and isinstance(space, Tokens | gym.Text):
        return data
    array = array_from_json(data, path, str(space))
    if array.shape != space.shape:
        raise _wrong("an array has another shape", path, array.shape, f"{space.shape}")
    _check_categories(space, array, path)
    return array


def batch_from_json(space: gymnasium.Space[Any], rows: list[Any], path: str = "observations") -> Any:
    """A batch of values of a space, one axis more in front of each leaf, from a list of them.

    Raises:
        SpaceError: One does not have the form of the space; names its row and leaf.
    """
    if not isinstance(space, gym.Dict | gym.Tuple) and not isinstance(rows[0], str):
        # all at once if possible; errors are located row by row
        with contextlib.suppress(SpaceError):
            array = array_from_json(rows, path, "")
            if array.shape[1:] == space.shape:
                _check_categories(space, array, path)
                return array
    values = [value_from_json(space, item, f"{path}/{index}") for index, item in enumerate(rows)]
    return tree_map(lambda *leaves: np.array(leaves, object if isinstance(leaves[0], str) else None), *values)


def _check_categories(space: Any, array: np.ndarray, path: str) -> None:
    if not isinstance(space, gym.Discrete | gym.MultiDiscrete | gym.MultiBinary):
        return
    low: Any = 0 if isinstance(space, gym.MultiBinary) else space.start
    count: Any = 2 if isinstance(space, gym.MultiBinary) else space.n if isinstance(space, gym.Discrete) else space.nvec
    if array.dtype.kind not in "bi" or np.any(array < low) or np.any(array >= low + count):
        raise _wrong("a category lies outside of its range", path, array.tolist(), str(space))


def array_from_json(data: Any, path: str, expected: str) -> np.ndarray:
    """An array of numbers or booleans.

    Raises:
        SpaceError: It is none.
    """
    try:
        array = np.asarray(data)
    except ValueError:
        raise _wrong("rows of an array are of unequal length", path, data, expected) from None
    if array.dtype.kind not in "biuf":
        raise _wrong("numbers are expected here", path, data, expected)
    return array


def value_to_json(value: Any) -> Any:
    """A value of a space as plain data."""
    if isinstance(value, Mapping):
        return {key: value_to_json(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [value_to_json(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def rows_to_json(batch: Any, rows: int) -> list[Any]:
    """The values of a batch, each as plain data."""
    if isinstance(batch, np.ndarray):
        found: list[Any] = batch.tolist()
        return found
    return [value_to_json(tree_map(operator.itemgetter(index), batch)) for index in range(rows)]


def _wrong(what: str, path: str, received: Any, expected: str) -> SpaceError:
    text = str(received)
    return SpaceError(what, where=path, received=text if len(text) <= 200 else f"{text[:200]}...", fix=expected)

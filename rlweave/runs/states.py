"""The state of a training as nested data, and as the contents of a checkpoint: arrays by path, and plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

#: The marks in plain data of an array, of a float that JSON cannot express, and of a dict that looks like one of
#: these two.
_ARRAY, _NOT_FINITE, _LITERAL = "array", "not finite", "literal"
_MARKS = (_ARRAY, _NOT_FINITE, _LITERAL)


class Large(dict[str, np.ndarray]):
    """Large arrays by path, such as those of a replay memory: checkpoints of one run share what has not changed."""


def split_arrays(
    data: Any, path: str, arrays: dict[str, np.ndarray], large: dict[str, np.ndarray] | None = None
) -> Any:
    """Plain data with references in place of arrays.

    Args:
        data: Nested dicts, lists and tuples of plain values and arrays.
        path: Its path, which its arrays are named by.
        arrays: Collects the arrays, by path.
        large: Collects those of `Large`; None: with the others.

    >>> arrays = {}
    >>> split_arrays({"a": [np.zeros(2), 1]}, "plan", arrays), list(arrays)
    ({'a': [{'array': 'plan/a/0'}, 1]}, ['plan/a/0'])
    """
    if isinstance(data, np.ndarray):
        while path in arrays:  # as of {"a/b": ...} beside {"a": {"b": ...}}
            path += "'"
        arrays[path] = data
        return {_ARRAY: path}
    if isinstance(data, np.generic):
        data = data.item()
    if isinstance(data, float) and not math.isfinite(data):  # JSON has none
        return {_NOT_FINITE: repr(data)}
    within = f"{path}/" if path else ""
    if isinstance(data, Large) and large is not None:
        arrays = large
    if isinstance(data, Mapping):
        plain = {str(key): split_arrays(value, f"{within}{key}", arrays, large) for key, value in data.items()}
        return {_LITERAL: plain} if _is_marked(plain) else plain
    if isinstance(data, list | tuple):
        return [split_arrays(value, f"{within}{i}", arrays, large) for i, value in enumerate(data)]
    return data


def join_arrays(data: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The data that `split_arrays` took apart; tuples are lists now."""
    if isinstance(data, dict) and _is_marked(data):
        [(mark, value)] = data.items()
        if mark == _ARRAY:
            return arrays[value]
        if mark == _NOT_FINITE:
            return float(value)
        data = value
    if isinstance(data, dict):
        return {key: join_arrays(value, arrays) for key, value in data.items()}
    if isinstance(data, list):
        return [join_arrays(value, arrays) for value in data]
    return data


def _is_marked(data: Mapping[str, Any]) -> bool:
    return len(data) == 1 and next(iter(data)) in _MARKS

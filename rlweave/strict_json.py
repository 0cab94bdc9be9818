"""JSON as the standard has it, which every program reads; Python's own writes `NaN` and `Infinity`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlweave.errors import RlweaveError


def to_json(data: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Writes plain data as JSON; the only place that does.

    Args:
        data: Nested dicts, lists, tuples and plain values.
        indent: Spaces for each level; None writes one line.
        sort_keys: Whether keys stand in the order of the alphabet.

    Raises:
        RlweaveError: A number is not finite; None is what is not known, or was not measured.
        TypeError: Something is no plain data.

    >>> to_json({"mean": 0.5, "best": None})
    '{"mean": 0.5, "best": null}'
    """
    try:
        return json.dumps(data, indent=indent, sort_keys=sort_keys, allow_nan=False)
    except ValueError:
        path, value = next(_not_finite(data, ""), ("", "it contains itself"))
        raise RlweaveError(
            "JSON has no number like this", where=path, received=str(value), fix="None where there is no value"
        ) from None


def _not_finite(data: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(data, float) and not math.isfinite(data):
        yield path, data
    items = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list | tuple) else ()
    for key, item in items:
        yield from _not_finite(item, f"{path}/{key}" if path else str(key))

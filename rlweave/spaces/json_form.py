"""Spaces from JSON data: the inverse of `Space.to_json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.box import Axis
from rlweave.spaces.boxes import BoolBox, FloatBox, IntBox
from rlweave.spaces.containers import Dict, Tuple
from rlweave.spaces.dim import Dim
from rlweave.spaces.space import Rank, Space
from rlweave.spaces.text import TextBox

_FIELDS: dict[str, frozenset[str]] = {
    "FloatBox": frozenset({"shape", "dtype", "batch", "time", "layout", "low", "high"}),
    "IntBox": frozenset({"shape", "dtype", "batch", "time", "layout", "low", "high"}),
    "BoolBox": frozenset({"shape", "dtype", "batch", "time", "layout"}),
    "TextBox": frozenset({"shape", "dtype", "batch", "time", "max_length", "min_length", "charset"}),
    "Dict": frozenset({"spaces"}),
    "Tuple": frozenset({"spaces"}),
}


def space_from_json(form: Any) -> Space:
    """Makes a space from the data that `Space.to_json` returned, or that a person wrote.

    Raises:
        SpaceError: When the data describes no space.

    >>> space_from_json({"type": "IntBox", "low": 0, "high": 5, "batch": "B"})
    IntBox((B,) int32 in [0, 5))
    """
    if not isinstance(form, Mapping) or not isinstance(form.get("type"), str):
        raise SpaceError(
            "A space in JSON is an object with a type.",
            received=repr(form),
            fix='for instance {"type": "FloatBox", "shape": [4]}',
        )
    name = form["type"]
    if name not in _FIELDS:
        raise SpaceError("A space in JSON has an unknown type.", received=repr(name), fix=nearest(name, _FIELDS))
    unknown = sorted(map(str, form.keys() - _FIELDS[name] - {"type"}))
    if unknown:
        raise SpaceError(
            f"A {name} in JSON has an unknown field.", received=repr(unknown[0]), fix=nearest(unknown[0], _FIELDS[name])
        )
    try:
        return _make(name, form)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, SpaceError):
            raise
        raise SpaceError(f"A {name} in JSON is malformed ({error}).", received=repr(dict(form))) from error


def _make(name: str, form: Mapping[str, Any]) -> Space:
    if name == "Dict":
        return Dict({key: space_from_json(child) for key, child in form["spaces"].items()})
    if name == "Tuple":
        return Tuple(*[space_from_json(child) for child in form["spaces"]])
    shape: tuple[Axis, ...] = tuple(Dim.parse(a) if isinstance(a, str) else a for a in form.get("shape", ()))
    batch, time = _rank(form.get("batch")), _rank(form.get("time"))
    layout = form.get("layout")
    if name == "BoolBox":
        BoolBox._dtype_name(form.get("dtype", "bool"))
        return BoolBox(shape, batch, time, layout)
    if name == "TextBox":
        TextBox._dtype_name(form.get("dtype", "object"))
        return TextBox(form.get("max_length"), form.get("min_length", 0), form.get("charset"), shape, batch, time)
    low, high = form.get("low"), form.get("high")
    given_shape = shape if "shape" in form else None
    if name == "FloatBox":
        return FloatBox(_floats(low), _floats(high), given_shape, form.get("dtype", "float32"), batch, time, layout)
    return IntBox(low, high, given_shape, form.get("dtype", "int32"), batch, time, layout)


def _rank(rank: Any) -> Rank:
    """Reads a rank: text as `to_json` writes it; people may write true, false or a number as in Python."""
    if rank is None:
        return False
    return Dim.parse(rank) if isinstance(rank, str) else rank


def _floats(bound: Any) -> Any:
    """Turns "inf" and "-inf", which strict JSON has no numbers for, into floats."""
    if isinstance(bound, list):
        return [_floats(item) for item in bound]
    return bound if bound is None else float(bound)

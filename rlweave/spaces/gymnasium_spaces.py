"""Gymnasium's spaces and values, converted once, at the environment boundary.

A space is converted by `from_gymnasium` and `to_gymnasium`. Values need their own conversion, because what is stored
and computed with is narrower than what environments use: float64 becomes float32, int64 becomes int32, and a
``Discrete(3, start=-1)`` becomes the *indices* {0, 1, 2}, so that no policy or memory ever sees a start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.box import LAYOUTS, TOKENS, Box
from rlweave.spaces.boxes import BoolBox, FloatBox, IntBox
from rlweave.spaces.containers import Dict, Tuple, space_of
from rlweave.spaces.space import Space, at_path, join_path
from rlweave.spaces.text import TextBox

_SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict and Tuple, nested as you like"
_INT32 = np.iinfo(np.int32)


class Tokens(gym.Box):
    """Text as the numbers of its words, int32 (length,); 0 where there is no word.

    Args:
        length: The most words.
        number: How many different numbers there are, 0 included.
    """

    def __init__(self, length: int, number: int) -> None:
        super().__init__(0, number - 1, (length,), np.int32)
        self.number = number

    def __repr__(self) -> str:
        return f"Tokens({self.shape[0]}, {self.number})"


def from_gymnasium(space: gymnasium.Space[Any], layout: str | Mapping[str, str] | None = None) -> Space:
    """Makes the space of a single step from a space of Gymnasium.

    =================  ===========================================================================================
    Box of floats      `FloatBox` of float32, whatever the precision
    Box of integers    `IntBox`; uint8 stays, all others become int32 (int64 where a bound does not fit int32)
    Box of booleans    `BoolBox`
    Discrete(n)        ``IntBox(n)`` of indices: the start stays at the boundary (`value_from_gymnasium`)
    MultiDiscrete      `IntBox` of indices with a range per dimension; starts likewise
    MultiBinary        `BoolBox`
    Text               `TextBox`
    Tokens             `IntBox` with the layout ``"tokens"``
    Dict, Tuple        `Dict`, `Tuple`
    =================  ===========================================================================================

    Args:
        space: The space of Gymnasium.
        layout: Declares where images have their channels, ``"channels_last"`` or ``"channels_first"``: one for all
            boxes of three axes, or a mapping of leaf paths to layouts. Never guessed.

    Raises:
        SpaceError: For a kind of space that has no fixed structure, or a layout that applies to nothing.

    >>> from_gymnasium(gym.Discrete(3, start=-1))
    IntBox(() int32 in [0, 3))
    >>> from_gymnasium(gym.Box(0, 255, (84, 84, 4), "uint8"), layout="channels_last")
    IntBox((84, 84, 4) uint8 in [0, 256) channels_last)
    """
    converted = _convert(space, "")
    return converted if layout is None else _declare_layout(converted, layout)


def _convert(space: gymnasium.Space[Any], path: str) -> Space:
    if isinstance(space, gym.Dict):
        for key in space.spaces:
            if not isinstance(key, str) or not key or "/" in key:
                raise SpaceError(
                    "A key of a Gymnasium Dict cannot be part of a path, which takes a string, not empty, without '/'.",
                    where=at_path(path, repr(space)),
                    received=f"key {key!r}",
                    fix="rename it in the environment, for instance with gymnasium.wrappers.TransformObservation",
                )
        return Dict({key: _convert(child, join_path(path, key)) for key, child in space.spaces.items()})
    if isinstance(space, gym.Tuple):
        return Tuple(*[_convert(child, join_path(path, index)) for index, child in enumerate(space.spaces)])
    if isinstance(space, gym.Discrete):
        return _indices(np.asarray(space.n))
    if isinstance(space, gym.MultiDiscrete):
        return _indices(np.asarray(space.nvec))
    if isinstance(space, gym.MultiBinary):
        return BoolBox(space.shape)
    if isinstance(space, gym.Text):
        return TextBox(space.max_length, space.min_length, space.characters)
    if isinstance(space, Tokens):
        return IntBox(space.number, shape=space.shape, layout=TOKENS)
    if isinstance(space, gym.Box):
        return _convert_box(space)
    raise _unsupported(space, path)


def _unsupported(space: Any, path: str) -> SpaceError:
    return SpaceError(
        f"A Gymnasium space of this kind cannot be converted: {type(space).__name__}.",
        where=path or "the whole space",
        received=repr(space),
        fix=f"supported are {_SUPPORTED}; wrap the environment so that it has one of these",
    )


def _indices(numbers: np.ndarray) -> IntBox:
    """Makes the box of the indices of categories, of which there are ``numbers`` per dimension."""
    return IntBox(high=numbers, shape=numbers.shape, dtype=_index_dtype(numbers))


def _index_dtype(numbers: np.ndarray) -> str:
    return "int32" if int(numbers.max(initial=0)) <= _INT32.max else "int64"


def _convert_box(space: gym.Box) -> Box:
    dtype = _box_dtype(space)
    if dtype == "bool":
        return BoolBox(space.shape)
    if dtype == "float32":
        return FloatBox(space.low, space.high, space.shape)
    if not space.low.size:
        return IntBox(shape=space.shape, dtype=dtype)
    limits, narrow = np.iinfo(np.dtype(space.dtype).name), np.iinfo(dtype)
    low, last = _exact(space.low), _exact(space.high)
    if limits.bits >= 32:
        # The ends of the wider dtype mean "no bound"; they become the ends of the narrower one.
        low = np.where(low == limits.min, max(narrow.min, limits.min), low)
        last = np.where(last == limits.max, narrow.max, last)
    return IntBox(low, np.asarray(last + 1, dtype=object), space.shape, dtype)


def _box_dtype(space: gym.Box) -> str:
    """Returns the dtype in which the values of a Box are kept: bool, float32, uint8, int32, or int64 if it must be."""
    dtype = np.dtype(space.dtype)
    if dtype.kind in "bf":
        return "bool" if dtype.kind == "b" else "float32"
    if dtype.kind not in "iu":
        raise SpaceError("A Box has a dtype that cannot be converted.", received=repr(space), fix="float, int or bool")
    if dtype.itemsize < 4 or dtype == np.int32:
        return "uint8" if dtype == np.uint8 else "int32"
    limits = np.iinfo(dtype.name)
    bounds = np.concatenate([space.low[space.low != limits.min].ravel(), space.high[space.high != limits.max].ravel()])
    fits = bounds.size == 0 or (int(bounds.min()) >= _INT32.min and int(bounds.max()) <= _INT32.max)
    return "int32" if fits else "int64"


def _exact(bound: np.ndarray) -> np.ndarray:
    """Turns bounds into Python integers, which do not overflow: one if they are all equal."""
    return np.asarray(int(bound.flat[0]) if (bound == bound.flat[0]).all() else bound, dtype=object)


def _declare_layout(space: Space, layout: str | Mapping[str, str]) -> Space:
    leaves = space.flatten()
    images = [path for path, leaf in leaves.items() if len(leaf.shape) == 3 and not isinstance(leaf, TextBox)]
    wanted = dict.fromkeys(images, layout) if isinstance(layout, str) else dict(layout)
    if not wanted and isinstance(layout, str):
        raise SpaceError(
            "A layout was declared, but no leaf is an image (has three axes).",
            where=repr(space),
            received=f"layout={layout!r}",
            fix="leave layout out",
        )
    for path, name in wanted.items():
        if name not in LAYOUTS:
            raise SpaceError("An image layout is unknown.", received=repr(name), fix=nearest(str(name), LAYOUTS))
        if path not in images:
            raise SpaceError(
                "A layout was declared for something that is no image (a leaf with three axes).",
                where=repr(space),
                received=f"layout={{{path!r}: {name!r}}}",
                fix=nearest(path, images) if images else "leave layout out",
            )
    declared = {path: leaf._replace(layout=wanted.get(path, leaf.layout)) for path, leaf in leaves.items()}
    return space_of(space.unflatten(declared))


def to_gymnasium(space: Space) -> gymnasium.Space[Any]:
    """Makes a space of Gymnasium from the space of a single step.

    An int32 `IntBox` whose values are indices becomes a Discrete (no axes) or a MultiDiscrete, any other `IntBox` a
    Box of integers. Layouts are lost, as Gymnasium has none.

    Raises:
        SpaceError: When the space has ranks or symbolic axes, or text without a longest length.

    >>> to_gymnasium(Dict(a=IntBox(5), b=BoolBox((2,))))
    Dict('a': Discrete(5), 'b': MultiBinary((2,)))
    """
    if isinstance(space, Dict):
        return gym.Dict({key: to_gymnasium(child) for key, child in space.items()})
    if isinstance(space, Tuple):
        return gym.Tuple([to_gymnasium(child) for child in space])
    if not isinstance(space, Box):
        raise SpaceError("This is no space of rlweave.", received=repr(space), fix="FloatBox, IntBox, Dict, ...")
    if space.ranks:
        raise SpaceError(
            "A Gymnasium space describes a single step: it has no batch and time ranks.",
            where=repr(space),
            fix="to_gymnasium(space.strip_ranks()), then gymnasium.vector.utils.batch_space",
        )
    shape = space.feature_shape
    if isinstance(space, FloatBox):
        return gym.Box(space.low, space.high, shape, np.dtype(space.dtype).type)
    if isinstance(space, TextBox):
        return _text_to_gymnasium(space)
    if isinstance(space, BoolBox):
        return gym.MultiBinary(shape) if 0 not in shape else gym.Box(0, 1, shape, np.bool_)
    if not isinstance(space, IntBox):
        raise SpaceError("Gymnasium has no space for this leaf.", received=repr(space), fix=f"one of {_SUPPORTED}")
    numbers = space.num_categories
    if space.layout == TOKENS and numbers is not None and space.dtype == "int32" and np.all(space.low == 0):
        return Tokens(shape[0], int(np.max(numbers)))
    if numbers is None or space.dtype != "int32" or 0 in shape:
        dtype = np.dtype(space.dtype)
        return gym.Box(space.low.astype(dtype), space.last.astype(dtype), shape, dtype.type)
    if not shape:
        return gym.Discrete(int(numbers))
    return gym.MultiDiscrete(np.broadcast_to(numbers, shape))


def _text_to_gymnasium(space: TextBox) -> gym.Text:
    if space.shape or space.max_length is None:
        raise SpaceError(
            "Gymnasium's Text is one text with a longest length.", where=repr(space), fix="TextBox(max_length, ...)"
        )
    if space.charset is None:
        raise SpaceError(
            "Gymnasium's Text has a set of characters.", where=repr(space), fix="TextBox(..., charset='abc')"
        )
    return gym.Text(space.max_length, min_length=space.min_length, charset=space.charset)


# ---- values --------------------------------------------------------------------------------------------------------


def value_from_gymnasium(space: gymnasium.Space[Any], value: Any) -> Any:
    """Converts a value of a Gymnasium space, or a batch of them, to one of ``from_gymnasium(space)``.

    Starts are subtracted and dtypes cast. All arrays are copies, so an environment may reuse its own.

    Args:
        space: The Gymnasium space of a single value.
        value: The value; leaves may have any leading axes in front of the axes of the space.

    Returns:
        NumPy arrays nested in dicts and tuples.

    Raises:
        SpaceError: When the nesting or the axes differ, or an integer does not fit the narrower dtype.

    >>> value_from_gymnasium(gym.Discrete(3, start=-1), [-1, 1])
    array([0, 2], dtype=int32)
    """
    return _value_from(space, value, "")


def _value_from(space: gymnasium.Space[Any], value: Any, path: str) -> Any:
    if isinstance(space, gym.Box):
        return _cast(value, _box_dtype(space), space.shape, path)
    if isinstance(space, gym.Discrete):
        return _without_start(value, space.start, np.asarray(space.n), path)
    if isinstance(space, gym.MultiDiscrete):
        return _without_start(value, space.start, space.nvec, path)
    if isinstance(space, gym.MultiBinary):
        return _cast(value, "bool", space.shape, path)
    if isinstance(space, gym.Text):
        return np.array(value, dtype=object)
    if isinstance(space, gym.Dict):
        _check_keys(space, value, path)
        return {key: _value_from(space.spaces[key], value[key], join_path(path, key)) for key in sorted(space.spaces)}
    if isinstance(space, gym.Tuple):
        _check_length(space, value, path)
        children = enumerate(zip(space.spaces, value, strict=True))
        return tuple(_value_from(child, item, join_path(path, index)) for index, (child, item) in children)
    raise _unsupported(space, path)


def _without_start(value: Any, start: Any, numbers: np.ndarray, path: str) -> np.ndarray:
    if np.any(start):
        value = _cast(value, "int64", numbers.shape, path) - start  # in 64 bits, before anything is narrowed
    return _cast(value, _index_dtype(numbers), numbers.shape, path)


_KINDS = {"b": "biu", "i": "biu", "u": "biu", "f": "biuf"}
"""The kinds of NumPy dtypes whose values can be kept in each kind of dtype."""


def _cast(value: Any, dtype: str, shape: tuple[int, ...], path: str) -> np.ndarray:
    """Copies a value into an array of the dtype, refusing what would change it (other than float precision)."""
    raw = np.asarray(value)
    if raw.shape[max(raw.ndim - len(shape), 0) :] != shape:
        raise SpaceError(
            "A value does not have the axes of its Gymnasium space.",
            where=path,
            received=f"shape {raw.shape}",
            fix=f"axes that end in {shape}",
        )
    kind = np.dtype(dtype).kind
    if raw.size and raw.dtype.kind not in _KINDS[kind]:
        raise SpaceError(
            f"A value of dtype {raw.dtype} cannot be kept as {dtype}.",
            where=path,
            received=repr(value),
            fix="return what the Gymnasium space declares, or declare what is returned",
        )
    converted = np.array(raw, dtype=dtype)
    if kind != "f" and raw.dtype != converted.dtype and not (converted == raw).all():
        raise SpaceError(
            f"A value does not fit {dtype}, in which its Gymnasium space is kept.",
            where=path,
            received=f"values from {raw.min()} to {raw.max()}",
            fix="declare the true bounds: integers whose bounds do not fit int32 are kept as int64",
        )
    return converted


def value_to_gymnasium(space: gymnasium.Space[Any], value: Any) -> Any:
    """Converts a value of ``from_gymnasium(space)``, or a batch of them, to one of the Gymnasium space.

    Starts are added and dtypes cast. A float32 at a bound becomes exactly the float64 bound, so that the Gymnasium
    space contains it.

    Args:
        space: The Gymnasium space of a single value.
        value: The value; leaves may have any leading axes in front of the axes of the space.

    Returns:
        What Gymnasium expects: arrays, NumPy integers for a single Discrete, ``str`` for a single Text (a tuple of
        them for a batch), dicts and tuples.

    Raises:
        SpaceError: When the nesting or the axes differ.

    >>> value_to_gymnasium(gym.Discrete(3, start=-1), np.array([0, 2], np.int32))
    array([-1,  1])
    """
    return _value_to(space, value, "")


def _value_to(space: gymnasium.Space[Any], value: Any, path: str) -> Any:
    if isinstance(space, gym.Box):
        return _box_value_to(space, value, path)
    if isinstance(space, gym.Discrete):
        return (_cast(value, np.dtype(space.dtype).name, (), path) + space.start)[()]
    if isinstance(space, gym.MultiDiscrete):
        return np.asarray(_cast(value, np.dtype(space.dtype).name, space.nvec.shape, path) + space.start)
    if isinstance(space, gym.MultiBinary):
        return _cast(value, "int8", space.shape, path)
    if isinstance(space, gym.Text):
        return _texts(np.asarray(value, dtype=object))
    if isinstance(space, gym.Dict):
        _check_keys(space, value, path)
        return {key: _value_to(child, value[key], join_path(path, key)) for key, child in space.spaces.items()}
    if isinstance(space, gym.Tuple):
        _check_length(space, value, path)
        children = enumerate(zip(space.spaces, value, strict=True))
        return tuple(_value_to(child, item, join_path(path, index)) for index, (child, item) in children)
    raise _unsupported(space, path)


def _box_value_to(space: gym.Box, value: Any, path: str) -> np.ndarray:
    converted = _cast(value, np.dtype(space.dtype).name, space.shape, path)
    array = np.asarray(value)
    if converted.dtype.kind == "f" and converted.dtype.itemsize > array.dtype.itemsize:
        # A bound that was rounded to float32 may lie outside the bound itself.
        with np.errstate(over="ignore"):
            at_low, at_high = array == space.low.astype(array.dtype), array == space.high.astype(array.dtype)
        converted = np.where(at_high, space.high, np.where(at_low, space.low, converted))
    return np.asarray(converted)


def _texts(array: np.ndarray) -> Any:
    """Nests an array of text in tuples, as Gymnasium batches it."""
    return array.item() if array.ndim == 0 else tuple(_texts(np.asarray(row, dtype=object)) for row in array)


def _check_keys(space: gym.Dict, value: Any, path: str) -> None:
    if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
        raise SpaceError(
            "A value does not have the keys of its Gymnasium Dict.",
            where=path,
            received=f"keys {list(value)}" if isinstance(value, Mapping) else f"a {type(value).__name__}",
            fix=f"a dict with the keys {sorted(space.spaces)}",
        )


def _check_length(space: gym.Tuple, value: Any, path: str) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(space.spaces):
        raise SpaceError(
            "A value does not have the entries of its Gymnasium Tuple.",
            where=path,
            received=f"{len(value)} entries" if isinstance(value, Sequence) else f"a {type(value).__name__}",
            fix=f"a tuple of {len(space.spaces)}",
        )


def starts_of(space: gymnasium.Space[Any], path: str = "") -> dict[str, np.ndarray]:
    """From where the indices of categories are counted in a Gymnasium space, int32 by leaf path; not where it is 0.

    >>> starts_of(gym.Tuple([gym.Discrete(3, start=-1), gym.Discrete(2)]))
    {'0': array(-1, dtype=int32)}
    """
    if isinstance(space, gym.Dict | gym.Tuple):
        children = space.spaces.items() if isinstance(space, gym.Dict) else enumerate(space.spaces)
        return {p: start for key, child in children for p, start in starts_of(child, join_path(path, key)).items()}
    start = np.asarray(getattr(space, "start", 0))
    return {path: start.astype(np.int32)} if np.any(start) else {}

"""The short texts of pictures: spaces, counts."""

from __future__ import annotations

import re

from rlweave.spaces import Box

#: Names that say nothing which a picture does not show anyway.
EMPTY_NAMES = frozenset({"", "args", "input", "inputs", "x", "value", "values"})
#: A rank of a fixed size.
_FIXED = re.compile(r"([TB])=\d+")
_SHORT_DTYPES = {"float": "f", "int": "i", "uint": "u"}


def short_space(space: Box) -> str:
    """A space in a few letters: `f32[T,B,4]`; ranks of a fixed size are not told from open ones.

    >>> from rlweave.spaces import FloatBox
    >>> short_space(FloatBox(shape=(4,), add_batch_rank=True))
    'f32[B,4]'
    """
    kind = space.dtype.rstrip("0123456789")
    short = _SHORT_DTYPES.get(kind, "") + space.dtype[len(kind) :] if kind in _SHORT_DTYPES else space.dtype
    axes = ",".join(_FIXED.sub(r"\1", str(axis)) for axis in space.axes)
    return f"{short}[{axes}]"


def label_of(space: Box, name: str) -> str:
    """A name, where it says something, and a short space."""
    return short_space(space) if name in EMPTY_NAMES else f"{name} {short_space(space)}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "variable"), plural(2, "variable")
    ('1 variable', '2 variables')
    """
    return f"{short_number(count)} {noun}" + ("" if count == 1 else "s")


def short_number(number: int) -> str:
    """A count for people.

    >>> short_number(950), short_number(4610), short_number(1684128)
    ('950', '4,610', '1.68M')
    """
    if number < 100_000:
        return f"{number:,}"
    if number < 1_000_000:
        return f"{number / 1e3:.0f}k"
    return f"{number / 1e6:.3g}M" if number < 1_000_000_000 else f"{number / 1e9:.3g}G"

"""Integers: they keep all of their digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.errors import RlweaveError
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import pairs, same_array
from rlweave.testing.checks.subject import Situation, Subject

#: Up to here float32 (float64) has all integers, and from here on every other one.
LIMITS = (2**24, 2**53)
#: How many integers in a row are tried.
COUNT = 16


def integers_keep_their_digits(subject: Subject) -> Iterator[Finding]:
    """Integers in a row, small and large ones: integer results that tell the small ones apart tell the large ones."""
    for situation in subject.situations():
        for path, space in situation.inputs.items():
            array = np.asarray(situation.flat[path])
            if array.dtype.kind not in "iu" or not array.size or space.low is None or space.high is None:
                continue
            low, high = (int(np.max(bound)) if which == "low" else int(np.min(bound)) for which, bound in
                         (("low", space.low), ("high", space.high)))  # fmt: skip
            for limit in LIMITS:
                if low <= 0 and high > limit + COUNT:
                    yield from _lost(situation, path, limit)


def _lost(situation: Situation, path: str, limit: int) -> Iterator[Finding]:
    try:
        small, large = (_told_apart(situation, path, base) for base in (0, limit))
    except (RlweaveError, IndexError, ValueError, ArithmeticError):
        return  # where such a number is refused
    for result, count in small.items():
        if 1 < large[result] < 3 * count / 4:  # rounded; 1 where results are clipped
            yield Finding(
                "integers",
                _rounding(situation, path, limit),
                f"{situation.where}: {path!r} was {limit} to {limit + COUNT - 1}, one after another, and {result} took "
                f"{large[result]} values; from 0 on it takes {count}",
                Cause.INTEGERS_ROUNDED,
                "leave integers in an integer dtype, in variables too: float32 has no odd ones above 2**24",
            )
            return


def _told_apart(situation: Situation, path: str, base: int) -> dict[str, int]:
    """How many values each integer result, or variable, takes."""
    values: dict[str, set[bytes]] = {}
    for number in range(base, base + COUNT):
        changed = {path: np.full_like(situation.flat[path], number)}
        for name, array in situation.call(changed, situation.state).items():
            if array.dtype.kind in "iu" and not name.startswith("state/random"):
                values.setdefault(name, set()).add(np.ascontiguousarray(array).tobytes())
    return {name.replace("/", " ", 1): len(found) for name, found in values.items()}


def _rounding(situation: Situation, path: str, limit: int) -> str:
    """The first graph function that gives the same for two integers."""
    one, other = (situation.run({path: np.full_like(situation.flat[path], limit + n)}) for n in (0, 1))
    for before, after in pairs(one, other):
        came = any(not same_array(leaf.array, after.inputs[name].array) for name, leaf in before.inputs.items())
        left = any(not same_array(leaf.array, after.outputs[name].array) for name, leaf in before.outputs.items())
        if came and not left:
            return before.where
    return situation.where

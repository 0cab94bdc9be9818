"""Numbers: finite at the edges, of the right width and sign, with all of their digits, and nothing changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from rlweave.errors import RlweaveError
from rlweave.spaces import Box
from rlweave.testing.checks.distributions import maker
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Recording, Step, pairs
from rlweave.testing.checks.subject import Situation, Subject

#: A number that is large for an observation or a reward, and whose square float32 still holds.
HUGE = 1e4

#: Logarithms of probabilities or densities that occur.
LOG_PROBABILITIES = (-30.0, 30.0)

#: From zero, of features that stand far apart: float32 holds no exponential of the distance.
FAR = 200.0

#: Nobody counts further.
LARGE_COUNT = 10**9

CHANGE_A_COPY = "compute a new array (x = x + 1 in place of x += 1); ops.set_at gives a changed copy"


def finite_at_edges(subject: Subject) -> Iterator[Finding]:
    """Inputs are all zero, lowest, highest, huge, equal, far apart or far from zero; one row; results stay finite."""
    for situation in subject.situations():
        tried: set[tuple[bytes, ...]] = set()  # of inputs with bounds several edges are the same
        for edge, value in EDGES.items():
            changed = {}
            for path, space in situation.inputs.items():
                array = np.asarray(situation.flat[path])
                if array.dtype.kind == "f" and array.size:
                    likely = LOG_PROBABILITIES if path.endswith(("log_probs", "log_prob")) else (-HUGE, HUGE)
                    changed[path] = np.clip(value(space, array), *likely).astype(array.dtype)
            given = tuple(array.tobytes() for array in changed.values())
            if given in tried:
                continue
            tried.add(given)
            if changed and np.isfinite(np.concatenate([x.ravel() for x in situation.flat.values() if _float(x)])).all():
                yield from _first_not_finite(situation, situation.run(changed), f"float inputs {edge}")
        for which in ("low", "high"):
            changed = dict(_integers_at(situation, which))
            if changed:
                edge = f"integer inputs at their {'lower' if which == 'low' else 'upper'} bounds"
                with suppress(RlweaveError):  # a component may refuse the number of a record that it does not hold
                    yield from _first_not_finite(situation, situation.run(changed), edge)
        yield from _first_not_finite(situation, situation.base, "sampled inputs")
    for situation in subject.situations(1):
        yield from _first_not_finite(situation, situation.base, "a batch of one row")


def _integers_at(situation: Situation, which: str) -> Iterator[tuple[str, np.ndarray]]:
    """Integers at a bound that they may be asked for: numbers of steps that are 0, say."""
    for path, space in situation.inputs.items():
        array, bound = np.asarray(situation.flat[path]), space.low if which == "low" else space.high
        if array.dtype.kind in "iu" and array.size and bound is not None:
            last = np.asarray(bound, np.int64) - (which == "high")
            if np.all(np.abs(last) <= LARGE_COUNT):  # beyond, it has the bounds of its type
                yield path, np.broadcast_to(last.astype(array.dtype), array.shape).copy()


def _float(array: np.ndarray) -> bool:
    return np.asarray(array).dtype.kind == "f"


def _limits(space: Box, array: np.ndarray, which: str) -> np.ndarray:
    """The bound of a box, or a huge number where there is none."""
    bound = space.low if which == "low" else space.high
    assert bound is not None
    huge = -HUGE if which == "low" else HUGE
    clipped = np.clip(np.nan_to_num(bound, posinf=HUGE, neginf=-HUGE), -HUGE, HUGE) if bound.size else bound
    return np.broadcast_to(np.where(np.isfinite(bound), clipped, huge).astype(array.dtype), array.shape).copy()


def _zeros(space: Box, array: np.ndarray) -> np.ndarray:
    low, high = _limits(space, array, "low"), _limits(space, array, "high")
    return np.clip(np.zeros_like(array), low, high)


def _equal(space: Box, array: np.ndarray) -> np.ndarray:
    first = array[(0,) * space.ranks]
    return np.broadcast_to(first, array.shape).copy()


def _one_above(space: Box, array: np.ndarray) -> np.ndarray:
    """The first feature (without any, the first row) at a distance at which the exponentials of others are 0."""
    far = np.full(array.shape or (1,), -FAR, array.dtype)
    far[..., :1] = FAR
    return np.clip(far.reshape(array.shape), _limits(space, array, "low"), _limits(space, array, "high"))


def _around(center: float) -> Callable[[Box, np.ndarray], np.ndarray]:
    """Far from zero, and close to each other: a variance that is a difference of squares may become negative."""
    return lambda space, array: np.clip(array + center, _limits(space, array, "low"), _limits(space, array, "high"))


EDGES: dict[str, Callable[[Box, np.ndarray], np.ndarray]] = {
    "all zero": _zeros,
    "at their lower bounds": lambda space, array: _limits(space, array, "low"),
    "at their upper bounds": lambda space, array: _limits(space, array, "high"),
    "equal in all rows": _equal,
    "with one far above the others": _one_above,
    **{f"close to {center:g}": _around(center) for center in (3e3, 5e3, 7e3, 9e3)},
}


def _first_not_finite(situation: Situation, recording: Recording, inputs: str) -> Iterator[Finding]:
    for step in recording.steps:
        fine = all(_is_finite(leaf.array) for leaf in step.inputs.values()) and all(map(_is_finite, step.read.values()))
        for name, array in _made(step):
            if fine and not _is_finite(array):
                bad = array.reshape(-1)[~np.isfinite(array.reshape(-1))][0]
                yield Finding(
                    "finite at the edges",
                    step.where,
                    f"{situation.where} with {inputs}: {name} has {bad}",
                    Cause.NOT_FINITE,
                    "keep logarithms, divisions and roots away from 0 and exponentials from large numbers: "
                    "ops.log_softmax, ops.maximum(x, 1e-8), ops.clip",
                )
                return


def _made(step: Step) -> list[tuple[str, np.ndarray]]:
    results = [(f"its result {name!r}" if name else "its result", leaf.array) for name, leaf in step.outputs.items()]
    return results + [(f"variable {path}", array) for path, array in step.written.items()]


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def no_wide_floats(subject: Subject) -> Iterator[Finding]:
    """What is computed from float32 and smaller integers stays float32."""
    for situation in subject.situations():
        for step in situation.base.steps:
            given = [leaf.array.dtype for leaf in step.inputs.values()] + [array.dtype for array in step.read.values()]
            for name, array in _made(step):
                if array.dtype == np.float64 and np.dtype(np.float64) not in given:
                    yield situation.finding(
                        "dtypes",
                        step,
                        f"{name} is float64, of inputs {sorted({str(d) for d in given})}",
                        Cause.WIDE_FLOATS,
                        'keep constants in float32: ops.asarray(x, "float32"); a NumPy array or scalar of float64 '
                        "widens all it meets",
                    )


def inputs_unchanged(subject: Subject) -> Iterator[Finding]:
    """No graph function writes into the arrays that it is given."""
    for situation in subject.situations():
        for step in situation.base.steps:
            if step.changed:
                yield situation.finding(
                    "inputs unchanged",
                    step,
                    f"it wrote into {', '.join(map(repr, step.changed))}",
                    Cause.INPUT_CHANGED,
                    CHANGE_A_COPY,
                )


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
        if not before.gets_the_same(after) and before.gives_the_same(after):
            return before.where
    return situation.where


#: Names of results that are 0 or more.
_NOT_NEGATIVE = ("priorities", "priority", "std", "stds", "stddev", "variance", "variances", "deviation", "deviations")


def not_negative(subject: Subject) -> Iterator[Finding]:
    """Results that are named priorities, variances or deviations are 0 or more."""
    for situation in subject.situations():
        for path, array in situation.base.result.items():
            name = situation.name_of(path)
            if name in _NOT_NEGATIVE and array.dtype.kind == "f" and (array < 0).any():
                yield Finding(
                    "ranges",
                    maker(situation, path),
                    f"{situation.where}: {name!r} has {array.min():.4g}",
                    Cause.NEGATIVE,
                    "priorities are sizes of errors, ops.abs(td_errors); variances are means of squared distances, and "
                    "no differences of squares",
                )

"""Probabilities: samples follow those that are reported, and those add up to one.

What draws is found by its results, and the method that reports probabilities by its parameters: those of what draws,
and the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlweave.graph.ir import Value
from rlweave.spaces import BoolBox, Box, IntBox
from rlweave.testing.checks.densities import (
    SIGMAS,
    Integral,
    counted_alone,
    differing_share,
    floats_alone,
    integral,
    listed,
    proposed,
)
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.randomness import draws
from rlweave.testing.checks.recording import place_of
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.tree import flatten_tree, unflatten_like

#: Samples of one distribution.
SAMPLES = 20_000
#: Samples whose own log-probabilities are asked for, and points over which a density is integrated.
_ASKED, _POINTS = 4_000, 8_000
#: Rows of the inputs whose distributions are looked at; one where values have several components.
_DISTRIBUTIONS = 2
#: What is added to weights; where numbers are pressed against their bounds, less.
_STRENGTHS = (0.5, 0.1)
#: Columns of elementwise densities that are looked at.
_COLUMNS = 3
_ACTS = ("act", "get_action")
_MODES = ("mode", "mode_and_log_prob")

_FIX_DENSITY = (
    "a density of y = f(u) is that of u divided by |f'(u)|, once; of the scale of the action box as well; a "
    "density in other units says so: Descriptor(density_unit=...)"
)
_FIX_FREQUENCIES = (
    "draw from, and report, the same distribution: logits and no probabilities, standard deviations and no variances, "
    "the number that was drawn and no clipped one"
)


@dataclass
class Reported:
    """A method that draws, and the methods that say how likely what it draws is.

    Args:
        sampler: Draws.
        values: Where the values are in its result; "" for all of it.
        log_prob: Where their log-probability is in its result; None if it is not there.
        density: Reports the log-probability of values.
        parameter: Its parameter for them.
        entropy: Reports the entropy.
        mode: Gives the likeliest values.
        strength: Deviation of what is added to weights, so that distributions are uneven.
    """

    sampler: Situation
    values: str
    log_prob: str | None
    density: Situation | None = None
    parameter: str = ""
    entropy: Situation | None = None
    mode: Situation | None = None
    strength: float = 0.5

    @property
    def leaves(self) -> dict[str, Box]:
        """Spaces of the values, by path below `values`."""
        outputs = self.sampler.outputs
        return {_below(path, self.values): space for path, space in outputs.items() if _is_below(path, self.values)}

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The state before the call, with weights that make distributions uneven."""
        rng = np.random.default_rng(0)
        state = dict(self.sampler.state)
        for path in sorted(self.sampler.subject.trainable):
            array = state[path]
            if array.dtype.kind == "f":
                state[path] = (array + self.strength * rng.standard_normal(array.shape)).astype(array.dtype)
        return state

    def call(self, situation: Situation, row: int, count: int, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Results of one of the methods, by path, for equal rows.

        Args:
            situation: The method.
            row: Of the inputs of what draws.
            count: How many.
            given: Values, by path of the inputs.
        """
        known = self.sampler.rows([row] * count)
        flat = {path: given.get(path, known.get(path, self.sampler.flat.get(path))) for path in situation.flat}
        executor = situation.subject.compiled
        executor.load_state_dict(self.state)
        arguments = unflatten_like(situation.arguments, flat)
        result = executor.execute(situation.method, **arguments, **situation.static)
        return {path: np.asarray(x) for path, x in flatten_tree(result).items() if x is not None}

    def columns(self, result: dict[str, np.ndarray]) -> np.ndarray:
        """Values of a result as (N, D), in the order of `leaves`."""
        arrays = [result[_joined(self.values, path)] for path in self.leaves]
        return np.concatenate([np.reshape(x, (len(x), -1)) for x in arrays], axis=-1).astype(np.float64)

    def log_probs(self, row: int, values: np.ndarray) -> np.ndarray:
        """What the density says of values (N, D): (N, 1), or (N, D) if it is elementwise."""
        assert self.density is not None
        given, start = {}, 0
        for path in self.leaves:
            full = _joined(self.parameter, path)
            like = np.asarray(self.density.flat[full])
            shape, size = like.shape[1:], int(np.prod(like.shape[1:]))
            part = values[:, start : start + size].reshape((len(values), *shape))
            given[full], start = part.astype(like.dtype), start + size
        result = self.call(self.density, row, len(values), given)
        return result[_first(self.density)].reshape((len(values), -1)).astype(np.float64)


# -- what reports --------------------------------------------------------------------------------------------------


def reports(subject: Subject) -> list[Reported]:
    """What a component draws, with what it says of the probabilities."""
    situations = subject.situations()
    found = []
    for situation in situations:
        if draws(situation) and takes_many(situation):
            reported = _sampler(situation)
            if reported is not None:
                _complete(reported, situations)
                if reported.density is not None or reported.log_prob is not None:
                    found.append(reported)
    return found


def takes_many(situation: Situation) -> bool:
    """Whether a batch can be as large as one likes, and there are no sequences."""
    axes = [axis for space in situation.inputs.values() for axis in space.axes if not isinstance(axis, int)]
    fixed = [axis for axis in axes if axis.symbols and axis.symbols != ("B",)]
    return bool(situation.open_inputs) and not fixed


def _sampler(situation: Situation) -> Reported | None:
    outputs = situation.graph.outputs
    if not isinstance(outputs, tuple):
        return Reported(situation, "", None)
    second = outputs[1] if len(outputs) > 1 else None
    says = "log_prob" in situation.method or situation.method.startswith(_ACTS)
    if says and isinstance(second, Value) and second.space.dtype.startswith("float"):
        return Reported(situation, "0", "1")
    return Reported(situation, "0", None)


def _complete(reported: Reported, situations: Sequence[Situation]) -> None:
    known = set(reported.sampler.arguments)
    for situation in situations:
        names = set(situation.arguments)
        extra = names - known
        if situation.method.startswith("log_prob") and len(extra) == 1 and takes_many(situation):
            parameter = next(iter(extra))
            paths = {_below(path, parameter): x for path, x in situation.inputs.items() if _is_below(path, parameter)}
            kinds = {path: np.dtype(space.dtype).kind for path, space in paths.items()}
            if kinds == {path: np.dtype(space.dtype).kind for path, space in reported.leaves.items()}:
                reported.density, reported.parameter = situation, parameter
        if not extra and situation.method == "entropy":
            reported.entropy = situation
        if not extra and situation.method in _MODES:
            reported.mode = situation
    if reported.entropy is None and reported.density is not None and reported.density.method.endswith("entropy"):
        reported.entropy = reported.density


# -- the check -----------------------------------------------------------------------------------------------------


def probabilities(subject: Subject) -> Iterator[Finding]:
    """Draws 20,000 values of a distribution or two; compares frequencies, entropy and mode with the density."""
    for reported in reports(subject):
        for reported.strength in _STRENGTHS:
            rows = 1 if sum(math.prod(box.feature_shape) for box in reported.leaves.values()) > 1 else _DISTRIBUTIONS
            found = [_compared(reported, row) for row in range(rows)]
            if any(findings is not None for findings in found):
                break
        for findings in found:
            yield from findings or []


def _compared(reported: Reported, row: int) -> list[Finding] | None:
    """What is found for the inputs of one row; None where it cannot be looked at."""
    result = reported.call(reported.sampler, row, SAMPLES, {})
    values = reported.columns(result)
    if not values.shape[1] or not np.isfinite(values).all():
        return None
    log_probs = None if reported.log_prob is None else result[reported.log_prob].astype(np.float64)
    if log_probs is not None and "log_prob" not in reported.sampler.method and np.ptp(log_probs) == 0.0:
        log_probs = None  # the same for all that is drawn: the value of the observation, perhaps
    if reported.density is not None:
        comparison = _Comparison(reported, row, values)
        return None if comparison.is_saturated else list(comparison.findings(log_probs))
    if log_probs is not None and log_probs.shape == (SAMPLES,):
        return list(_alone(reported, values, log_probs))
    return None


def _alone(reported: Reported, values: np.ndarray, log_probs: np.ndarray) -> Iterator[Finding]:
    """Compares values with the log-probabilities that came with them."""
    kinds = {np.dtype(space.dtype).kind for space in reported.leaves.values()}
    density = frequencies = ""
    if kinds <= set("biu"):
        density, frequencies = counted_alone(values, log_probs)
    elif kinds == {"f"} and values.shape[1] == 1:
        density, frequencies = floats_alone(values[:, 0], log_probs + np.log(_unit(reported)))
    where = maker(reported.sampler, reported.log_prob or "")
    if density:
        yield not_a_density(where, f"{reported.sampler.where}: {density}")
    if frequencies:
        yield _wrong_frequencies(where, f"{reported.sampler.where}: {frequencies}")


def _unit(reported: Reported) -> float:
    return 1.0 / reported.sampler.subject.descriptor.density_unit


class _Comparison:
    """Samples (N, D) of one distribution and the density that is reported for it."""

    def __init__(self, reported: Reported, row: int, samples: np.ndarray) -> None:
        self.reported, self.row, self.samples = reported, row, samples
        density = reported.density
        assert density is not None
        self.density = density
        self.where = maker(density, _first(density))
        self.counted, self.bounds = [], []
        for path in reported.leaves:
            space = density.inputs[_joined(reported.parameter, path)].strip_ranks()
            counted, bounds = _values_of(space)
            self.counted += counted
            self.bounds += bounds

    @cached_property
    def own(self) -> np.ndarray:
        """What the density says of the first samples."""
        return self.reported.log_probs(self.row, self.samples[:_ASKED])

    @property
    def is_saturated(self) -> bool:
        """Whether samples lie so close to a bound, where their density is high, that rounding shows."""
        if self._outside() is not None:
            return False
        summed = self.own.sum(axis=-1)
        for number, values in enumerate(self.counted):
            x = self.samples[:_ASKED, number]
            near = 1e-5 * np.ptp(x)
            pressed = (x > x.max() - near) | (x < x.min() + near)
            if values is None and pressed.mean() > 0.002:
                usual = np.median(summed[~pressed]) if not pressed.all() else -np.inf
                if summed[pressed].mean() > usual + 2.0:
                    return True
        return False

    def findings(self, returned: np.ndarray | None) -> Iterator[Finding]:
        """All that does not fit.

        Args:
            returned: Log-probabilities that came with the samples.
        """
        outside = self._outside()
        if outside is not None:
            yield outside
            return
        own = self.own
        if own.shape[1] not in (1, self.samples.shape[1]):
            return
        if returned is not None:
            yield from self._returned(returned[:_ASKED].reshape((_ASKED, -1)), own)
        together = own.shape[1] == 1
        countable = [values for values in self.counted if values is not None]
        points = listed(countable) if together and len(countable) == len(self.counted) else None
        points = points or proposed(self.samples, self.counted, self.bounds, _POINTS, together)
        log_probs = self.reported.log_probs(self.row, points.values)
        if together:
            yield from self._compare(
                integral(points.values, points.weights, log_probs[:, 0], points.listed), slice(None), log_probs[:, 0]
            )
            return
        for number in range(min(self.samples.shape[1], _COLUMNS)):
            column = slice(number, number + 1)
            found = integral(points.values[:, column], points.weights[:, number], log_probs[:, number], False)
            yield from self._compare(found, column, log_probs[:, number])

    def _outside(self) -> Finding | None:
        for number, values in enumerate(self.counted):
            if values is not None and not np.isin(self.samples[:, number], values).all():
                odd = self.samples[~np.isin(self.samples[:, number], values), number][0]
                seen = f"{self.reported.sampler.where} drew {odd:g}, and values are {values[0]:g} to {values[-1]:g}"
                fix = "draw indices from 0; ops.random.randint leaves out its upper bound"
                return Finding("probabilities", _drawing(self.reported), seen, Cause.ACTION_OUTSIDE, fix)
        return None

    def _returned(self, returned: np.ndarray, own: np.ndarray) -> Iterator[Finding]:
        if returned.shape != own.shape:
            return
        far = np.abs(returned - own) > 0.02 + 0.01 * np.abs(own)
        if far.mean() > 0.05:
            row = int(np.argmax(far.any(axis=-1)))
            seen = (
                f"{self.reported.sampler.where} drew {self.samples[row].tolist()} and reported the log-probability "
                f"{returned[row, 0]:.3f} with it; {self.density.where} says {own[row, 0]:.3f}"
            )
            yield _wrong_frequencies(maker(self.reported.sampler, self.reported.log_prob or ""), seen)

    def _compare(self, found: Integral, column: slice, log_probs: np.ndarray) -> Iterator[Finding]:
        counted, samples = self.counted[column], self.samples[:, column]
        unit = self.reported.sampler.subject.descriptor.density_unit ** sum(values is None for values in counted)
        total, error = found.total / unit, found.error / unit
        if not abs(total - 1.0) <= 0.02 + SIGMAS * min(error, 0.1):
            seen = f"{self.density.where}: the probabilities of all values add up to {total:.3f}"
            yield not_a_density(self.where, seen)
            return
        if not found.is_sharp:
            return
        differs = differing_share(samples, found, counted)
        if differs:
            yield _wrong_frequencies(self.where, f"{self.reported.sampler.where} and {self.density.where}: {differs}")
        yield from self._entropy(found, column, log_probs)
        yield from self._mode(found, column, log_probs)

    def _entropy(self, found: Integral, column: slice, log_probs: np.ndarray) -> Iterator[Finding]:
        situation = self.reported.entropy
        if situation is None:
            return
        given = {path: array[:4] for path, array in self._taken().items()} if situation is self.density else {}
        result = self.reported.call(situation, self.row, 4, given)
        path = "1" if situation is self.density else _first(situation)
        said = result[path].reshape((4, -1))[0, column]
        if said.size != 1:
            return
        reported = float(said[0])
        mean, error = found.mean(np.where(found.share > 0, log_probs, 0.0))
        allowed = 0.03 * max(1.0, abs(mean)) + SIGMAS * error
        if not abs(reported + mean) <= allowed:
            seen = f"{situation.where} reports the entropy {reported:.3f}; the mean of -log_prob is {-mean:.3f}"
            sign = abs(reported - mean) <= allowed
            yield Finding(
                "probabilities",
                maker(situation, path),
                seen,
                Cause.ENTROPY_SIGN if sign else Cause.WRONG_ENTROPY,
                "an entropy is -sum(p log p), over the whole distribution" + ("; the sign is missing" if sign else ""),
            )

    def _taken(self) -> dict[str, np.ndarray]:
        """Some values, as the density takes them."""
        return {
            path: np.asarray(x) for path, x in self.density.flat.items() if _is_below(path, self.reported.parameter)
        }

    def _mode(self, found: Integral, column: slice, log_probs: np.ndarray) -> Iterator[Finding]:
        situation = self.reported.mode
        if situation is None:
            return
        result = self.reported.call(situation, self.row, 2, {})
        top = "0/" if isinstance(situation.graph.outputs, tuple) else ""
        paths = [path for path in result if path.startswith(top)] if top else list(result)
        arrays = [result[path] for path in paths if path != "1"]
        mode = np.concatenate([np.reshape(x, (2, -1)) for x in arrays], axis=-1)[:1].astype(np.float64)
        if mode.shape[1] != self.samples.shape[1]:
            return
        fine = True
        if found.listed:
            at = self.reported.log_probs(self.row, mode)[0, 0]
            fine = bool(at >= np.max(log_probs) - 1e-3)
        else:
            low, high = np.quantile(self.samples[:, column], [0.001, 0.999], axis=0)
            fine = bool(np.all((mode[0, column] >= low - 1e-6) & (mode[0, column] <= high + 1e-6)))
        if not fine:
            seen = f"{situation.where} gives {mode[0, column].tolist()}, which is not where the density is high"
            fix = "the mode is the value of the largest probability, in the units of samples"
            yield Finding("probabilities", maker(situation, paths[0]), seen, Cause.WRONG_FREQUENCIES, fix)


def _values_of(space: Box) -> tuple[list[np.ndarray | None], list[tuple[float, float]]]:
    """By coordinate of a space the values that there are (of floats None), and bounds."""
    shape = space.concrete_shape({})
    size = math.prod(shape)
    if isinstance(space, BoolBox):
        return [np.array([0.0, 1.0])] * size, [(0.0, 1.0)] * size
    assert space.low is not None
    assert space.high is not None
    low, high = (np.broadcast_to(np.asarray(x, np.float64), shape).reshape(-1) for x in (space.low, space.high))
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    if isinstance(space, IntBox):
        return [np.arange(a, b) for a, b in bounds], bounds
    return [None] * size, bounds


# -- words ---------------------------------------------------------------------------------------------------------


def not_a_density(where: str, seen: str) -> Finding:
    """The finding."""
    return Finding("probabilities", where, seen, Cause.NOT_A_DENSITY, _FIX_DENSITY)


def _wrong_frequencies(where: str, seen: str) -> Finding:
    return Finding("probabilities", where, seen, Cause.WRONG_FREQUENCIES, _FIX_FREQUENCIES)


def maker(situation: Situation, path: str) -> str:
    """The graph function that makes a result."""
    value: Any = flatten_tree(situation.graph.outputs).get(path)
    return place_of(value.node) if isinstance(value, Value) and value.node is not None else situation.where


def _drawing(reported: Reported) -> str:
    return next(step.where for step in reported.sampler.base.steps if step.drew)


def _first(situation: Situation) -> str:
    return "0" if isinstance(situation.graph.outputs, tuple) else ""


def _is_below(path: str, prefix: str) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + "/")


def _below(path: str, prefix: str) -> str:
    return path[len(prefix) :].strip("/") if prefix else path


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}/{path}".strip("/")

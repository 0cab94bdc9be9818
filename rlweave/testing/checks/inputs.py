"""Inputs and variables: each has to matter for something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlweave.errors import RlweaveError
from rlweave.graph.component import Component, api_methods
from rlweave.graph.ir import all_nodes
from rlweave.spaces import Box
from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import pairs, place_of, same_array, source_line
from rlweave.testing.checks.subject import Situation, Subject

#: Further samples in which an input may matter before it is called unused.
SEEDS = (10, 20, 30)
#: Vectors up to this length are looked at feature by feature.
FEATURES = 16
#: A change below is rounding: a number that is added and taken away again has no effect.
_ROUNDING = 1e-6

Arrays = Mapping[str, np.ndarray]


def unused_inputs(subject: Subject) -> Iterator[Finding]:
    """Each leaf of each input (of vectors each feature) is changed in several samples; something has to move.

    An argument that one method of several ignores, as the mode of a distribution ignores its deviation, is none.
    """
    silent = [
        (situation, path)
        for situation in subject.situations()
        for path, space in situation.inputs.items()
        if _can_change(space) and not _matters(subject, situation, path)
    ]
    found = {(situation.method, path) for situation, path in silent}
    for situation, path in silent:
        elsewhere = any(path in other.inputs and (other.method, path) not in found for other in subject.situations())
        argument = [p for p in situation.inputs if p.split("/")[0] == path.split("/")[0]]
        ignored = elsewhere and all((situation.method, p) in found for p in argument)
        if not ignored and path not in subject.descriptor.unused.get(situation.method, ()):
            yield Finding(
                "unused input",
                _end_of(situation, path),
                f"{situation.where}: {path!r} was sampled anew, set to its lowest and to its highest values, "
                "and no result, metric or variable moved",
                Cause.UNUSED_INPUT,
                "use it where it is meant to matter, or take it out of the method's parameters and spaces; where an "
                "interface asks for it, name it in `unused` of the component's descriptor",
            )
    yield from _unused_features(subject, found)
    yield from _unneeded(subject, found)


def _unused_features(subject: Subject, silent: set[tuple[str, str]]) -> Iterator[Finding]:
    for situation in subject.situations():
        for path, space in situation.inputs.items():
            if (situation.method, path) in silent:
                continue
            movable = [i for i in _features(space) if _can_change(space, i)]
            features = [i for i in movable if not _matters(subject, situation, path, i)]
            if {0, len(_features(space)) - 1} & set(features):  # one in the middle may have a factor of 0
                yield Finding(
                    "unused input",
                    _end_of(situation, path),
                    f"{situation.where}: feature{'s' if len(features) > 1 else ''} {', '.join(map(str, features))} of "
                    f"{path!r} took other values, and no result, metric or variable moved",
                    Cause.UNUSED_INPUT,
                    "see which slice or index leaves it out: x[..., :-1] drops the last feature",
                )


def _unneeded(subject: Subject, silent: set[tuple[str, str]]) -> Iterator[Finding]:
    for method, paths in subject.descriptor.unused.items():
        for path in paths:
            if (method, path) not in silent:
                yield Finding(
                    "unused input",
                    f"descriptor {subject.descriptor.name!r}",
                    f"{method}: {path!r} is declared unused, and results depend on it (or there is no such input)",
                    Cause.UNNEEDED_DECLARATION,
                    "take it out of `unused`",
                )


def _can_change(space: Box, feature: int | None = None) -> bool:
    """Whether a leaf, or one feature of it, has more than one value."""
    plain = space.strip_ranks()
    if not all(plain.shape):
        return False
    if space.dtype == "str" or space.low is None or space.high is None:
        return True
    differ = np.asarray(plain.low) != np.asarray(plain.high)
    return bool(np.any(differ) if feature is None or not differ.ndim else differ[feature])


def _features(space: Box) -> range:
    shape = space.strip_ranks().shape
    count = shape[0] if len(shape) == 1 and space.dtype != "str" else 0
    return range(count) if isinstance(count, int) and 1 < count <= FEATURES else range(0)


def _matters(subject: Subject, situation: Situation, path: str, feature: int | None = None) -> bool:
    for again, state in _samples(subject, situation):
        array, before = np.asarray(again.flat[path]), again.call({}, state)
        for value in _values(again, path):
            changed = np.array(value)
            if feature is not None:
                changed = array.copy()
                changed[..., feature] = value[..., feature]
            if not same_array(array, changed) and _moves(before, again, {path: changed}, state):
                return True
    return False


def _samples(subject: Subject, situation: Situation) -> Iterator[tuple[Situation, Arrays]]:
    """The call with several inputs, random numbers and weights: a last layer may begin with zeros."""
    yield situation, situation.state
    for again in subject.second_round:  # what is kept begins with zeros
        if again.method == situation.method:
            yield again, again.state
    for seed in (0, *SEEDS):
        for again in subject.calls(seed):
            if again.method == situation.method:
                yield again, again.state
                yield again, shaken(subject, again.state, seed)


def shaken(subject: Subject, state: Arrays, seed: int) -> dict[str, np.ndarray]:
    """A state with noise on what is trained, and with other random numbers."""
    rng = np.random.default_rng(seed)
    random = subject.random_state(seed)
    return random | {
        path: (array + 0.3 * rng.standard_normal(array.shape)).astype(array.dtype)
        if path in subject.trainable and array.dtype.kind == "f"
        else array
        for path, array in state.items()
        if path not in random
    }


def _values(situation: Situation, path: str) -> Iterator[np.ndarray]:
    """Other values of an input: sampled anew, lowest, highest (0 and 1 where there are no bounds)."""
    array, space = np.asarray(situation.flat[path]), situation.inputs[path]
    yield np.asarray(situation.flat_others[path])
    if array.dtype.kind in "fiub":
        for bound, open_bound in ((space.low, 0.0), (space.high, 1.0)):
            closed = np.nan_to_num(np.asarray(bound, np.float64), nan=open_bound, posinf=open_bound, neginf=open_bound)
            if array.dtype.kind in "iu" and bound is space.high:  # they are below it
                closed = closed - np.isfinite(np.asarray(bound, np.float64))
            closed = np.where(np.abs(closed) < 1e6, closed, open_bound)
            yield np.broadcast_to(closed.astype(array.dtype), array.shape)


def _moves(before: Arrays, situation: Situation, changed: Arrays, state: Arrays, besides: str = "") -> bool:
    """Whether a result, metric or variable (besides one) is another than before; a call that fails saw the change."""
    try:
        after = situation.call(changed, state)
    except (RlweaveError, IndexError, ValueError, ArithmeticError):
        return True
    return any(_differ(array, after[name]) for name, array in before.items() if name != besides)


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or bool(np.any(differs(one, other, _ROUNDING)))


def _end_of(situation: Situation, path: str) -> str:
    """The last graph function that the input reaches, else the API method."""
    other = np.asarray(situation.flat_others[path])
    place = situation.place
    for before, after in pairs(situation.base, situation.run({path: other})):
        if not before.gets_the_same(after):
            place = before.where
    return place


def unused_variables(subject: Subject) -> Iterator[Finding]:
    """Each variable is changed before each call of two rounds; a result or another variable has to move."""
    calls = subject.calls(0) + subject.second_round
    called = {situation.method for situation in calls}
    root = subject.eager.root
    all_called = all(name in called for name in api_methods(type(root)) if root.offers(name))
    for path in subject.variables:
        readers = [n for g in subject.eager.graphs.values() for n in all_nodes(g) if path in n.reads]
        if not readers and not all_called:
            continue  # a method that was not called may read it
        if _is_count(calls, path) or any(_has_effect(situation, path) for situation in calls):
            continue
        yield Finding(
            "unused variable",
            place_of(readers[-1]) if readers else _made_at(root, path),
            f"{path} took other values before each call of two rounds, and no result, metric or other variable moved"
            + (f"; {readers[-1].label} reads it" if readers else "; no graph function reads it"),
            Cause.UNUSED_VARIABLE,
            "use it, or do not create it: an optimizer that trains it does so without effect",
        )


def _is_count(calls: list[Situation], path: str) -> bool:
    """A whole number that calls write: it may be there to be read from outside."""
    first = calls[0].state[path]
    return first.ndim == 0 and first.dtype.kind in "iu" and any(_differ(first, s.state[path]) for s in calls)


def _has_effect(situation: Situation, path: str) -> bool:
    array = situation.state[path]
    if array.size == 0:
        return True
    before = situation.call({}, situation.state)
    others = ({**situation.state, path: other} for other in _other_values(array))
    return any(_moves(before, situation, {}, state, f"state/{path}") for state in others)


def _other_values(array: np.ndarray) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    if array.dtype.kind == "b":
        yield ~array
    elif array.dtype.kind in "iu":
        yield (array + 1).astype(array.dtype)
        yield np.where(array > 0, array - 1, array).astype(array.dtype)
    elif array.dtype.kind == "f":
        for scale in (0.1, 1.0, 10.0):
            yield np.asarray(array + scale * rng.uniform(0.5, 1.5, array.shape)).astype(array.dtype)


def _made_at(root: Component, path: str) -> str:
    owner = max((c for c in root.tree() if path.startswith(c.path + "/")), key=lambda c: len(c.path), default=root)
    return f"{path}, {source_line(type(owner).create_variables)}"

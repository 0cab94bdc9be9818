"""Random numbers that are drawn once, and used for several rows or in several places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.graph.ir import Value
from rlweave.testing.checks.axes import Along, positions
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.randomness import CALLS, DRAWING_NAMES, ROWS, drawn, draws
from rlweave.testing.checks.recording import Leaf, Step, same_array
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.tree import flatten_tree

#: How many times the variance between calls may be what independent rows would have.
_EXCESS = 8.0
#: Integers with more values are numbers, and no categories.
_CATEGORIES = 16


# -- each row its own --------------------------------------------------------------------------------------------


def rows_draw_apart(subject: Subject) -> Iterator[Finding]:
    """All rows get the same inputs; what is drawn must differ from row to row, not only from call to call."""
    for situation in subject.situations():
        if draws(situation):
            yield from _shared_draws(situation)


def _shared_draws(situation: Situation) -> Iterator[Finding]:
    recordings = drawn(situation)
    sizes = {**situation.sizes, "B": ROWS if situation.open_inputs else situation.sizes["B"]}
    source: dict[int, Step] = {}  # what a value without rows was drawn by
    excused: set[int] = set()
    for index, step in enumerate(recordings[0].steps):
        steps = [recording.steps[index] for recording in recordings]
        if any(other.node.label != step.node.label for other in steps):
            return
        made = [id(leaf.value) for leaf in step.outputs.values()]
        drawn_by = next((source[id(leaf.value)] for leaf in step.inputs.values() if id(leaf.value) in source), None)
        drawn_by = step if drawn_by is None and step.drew else drawn_by
        if _is_excused(steps, excused):
            excused.update(made)
        elif drawn_by is not None:
            for name, leaf in step.outputs.items():
                arrays = [other.outputs[name].array for other in steps]
                rows = _by_row(leaf, arrays, sizes)
                if rows is None:
                    source[id(leaf.value)] = drawn_by
                elif _is_shared(rows, leaf.array.dtype.kind != "f"):
                    excused.update(made)
                    if not _is_parameter_noise(situation, index, name):
                        yield _drawn_once(situation, drawn_by, step, name)
                        break


def _is_excused(steps: list[Step], excused: set[int]) -> bool:
    """Whether rows may have something random in common: it is declared, kept in a variable, or found already."""
    step = steps[0]
    if step.declared is not None and step.declared.mixes_batch:
        return True
    kept = any(not same_array(array, other.read[path]) for other in steps[1:] for path, array in step.read.items())
    return kept or any(id(leaf.value) in excused for leaf in step.inputs.values())


def _by_row(leaf: Leaf, arrays: list[np.ndarray], sizes: dict[str, int]) -> np.ndarray | None:
    """Numbers by call, row and feature; None where there are no rows."""
    shape = arrays[0].shape
    if any(array.shape != shape for array in arrays) or not arrays[0].size or arrays[0].dtype.kind not in "fiub":
        return None
    where = positions(leaf.space, shape, Along.BATCH, sizes)
    if where is None or where.size < 2:
        return None
    axis = int(np.argmax(where.shape))
    stacked = np.moveaxis(np.stack(arrays).astype(np.float64), axis + 1, 1)
    return stacked.reshape(len(arrays), shape[axis], -1)


def _is_shared(rows: np.ndarray, integers: bool) -> bool:
    """Whether rows move together from call to call: (calls, rows, features)."""
    if integers and len(np.unique(rows)) <= _CATEGORIES:  # rows may agree on the mean, and not on a category
        rows = np.concatenate([rows == category for category in np.unique(rows)], axis=-1).astype(np.float64)
    rest = rows - rows.mean(axis=0)
    rest = np.where(np.isfinite(rest), rest, 0.0)
    between = np.var(rest.sum(axis=1), axis=0)
    alone = np.var(rest, axis=0).sum(axis=0)
    count = rows.shape[1]
    moves = alone > 1e-10
    if count > 2 * _EXCESS:
        return bool(np.any(moves & (between > _EXCESS * alone)))
    different = len(np.unique(rows[:, 0], axis=0)) > 4  # few rows: numbers of which no two are equal by chance
    return different and bool(np.any(moves & np.all(np.ptp(rest, axis=1) < 1e-6, axis=0)))


def _is_parameter_noise(situation: Situation, index: int, name: str) -> bool:
    """Whether the noise is on a matrix of weights: its effect then differs from one input to another."""
    first, second = (situation.run({}, situation.seeded(seed)).steps[index] for seed in (0, 1))
    store = situation.subject.eager.store
    if not any(store.cells[path].trainable and array.ndim > 1 for path, array in first.read.items()):
        return False
    effect = second.outputs[name].array.astype(np.float64) - first.outputs[name].array
    rows = _by_row(first.outputs[name], [effect], situation.sizes)
    return rows is not None and float(np.max(np.ptp(rows[0], axis=0))) > 1e-3 * float(np.max(np.abs(effect)))


def _drawn_once(situation: Situation, source: Step, step: Step, name: str) -> Finding:
    at = f"its result {name!r}" if name else "its result"
    spread = "" if step is source else f" (through {step.node.label})"
    return Finding(
        "rows draw apart",
        source.where,
        f"{situation.where}: of {CALLS} calls with equal rows, {at} moved in all rows at once{spread}",
        Cause.DRAWN_ONCE,
        "draw a number for each row: ops.random.normal(x.shape), ops.random.uniform(x.shape[:1]); noise that all rows "
        "share on purpose declares @graph_fn(mixes_batch=True)",
    )


# -- each number once --------------------------------------------------------------------------------------------


def numbers_used_once(subject: Subject) -> Iterator[Finding]:
    """Two results that are to be drawn apart, leaves of an action or its components, are not the same noise."""
    for situation in subject.situations():
        if draws(situation) and situation.open_inputs:
            yield from _twice(situation)


def _twice(situation: Situation) -> Iterator[Finding]:
    sizes = {**situation.sizes, "B": ROWS}
    noises = _noises(situation, sizes)
    acts = situation.method.startswith(("act", "explore", "select", "choose", "get_action", "noise", *DRAWING_NAMES))
    names = {part for path in situation.inputs for part in path.split("/")}
    acts = acts or bool(names & {"action", "actions", "mean", "logits", "q_values"})
    for path, noise in noises.items():
        columns = noise.reshape(-1, noise.shape[-1])
        if acts and columns.shape[1] > 1 and _same_noise(columns[:, 0], columns[:, 1]):
            yield _drawn_twice(situation, path, f"components 0 and 1 of {_named(path)} move together")
    paths = list(noises)
    for number, one in enumerate(paths):
        for other in paths[number + 1 :]:
            x, y = noises[one], noises[other]
            same = _same_noise(x[..., 0].reshape(-1), y[..., 0].reshape(-1)) if x.shape[:2] == y.shape[:2] else False
            if same and _meant_apart(situation, one, other, acts):
                yield _drawn_twice(situation, one, f"{_named(one)} and {_named(other)} move together")


def _named(path: str) -> str:
    return f"result {path!r}" if path else "the result"


def _noises(situation: Situation, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """What is random in the results, by path: (calls, rows, features)."""
    found = {}
    for path, space in situation.outputs.items():
        arrays = [recording.result[path] for recording in drawn(situation) if path in recording.result]
        value = Value(space, None)
        rows = _by_row(Leaf(value, space, arrays[0]), arrays, sizes) if arrays else None
        if rows is not None and np.isfinite(rows).all() and np.std(rows[..., 0]) > 1e-6:
            found[path] = rows - rows.mean(axis=(0, 1))
    return found


def _same_noise(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two noises are one, up to its size."""
    sizes = np.std(one), np.std(other)
    if min(sizes) < 1e-6 or len(np.unique(one)) < 2:
        return False
    return float(np.mean(one * other) / (sizes[0] * sizes[1])) > 1.0 - 1e-4


def _meant_apart(situation: Situation, one: str, other: str, acts: bool) -> bool:
    """Whether two results are those of different things: leaves of one action, or made of different inputs."""
    siblings = "/" in one and "/" in other and one.rpartition("/")[0] == other.rpartition("/")[0]
    same_kind = situation.outputs[one].dtype == situation.outputs[other].dtype
    if acts and siblings and same_kind and not one.rpartition("/")[2].isdigit():
        return True
    made_of = [set[str](), set[str]()]
    for path in situation.open_inputs:
        result = situation.run({path: situation.flat_others[path]}).result
        for number, name in enumerate((one, other)):
            if not same_array(result[name], situation.base.result[name]):
                made_of[number].add(path)
    return bool(made_of[0] - made_of[1] and made_of[1] - made_of[0])


def _drawn_twice(situation: Situation, path: str, seen: str) -> Finding:
    node = flatten_tree(situation.graph.outputs)[path].node
    made_by = [step for step in situation.base.steps if node is not None and step.node.label == node.label]
    place = next(step for step in (*made_by, *situation.base.steps) if step.drew)
    return Finding(
        "numbers used once",
        place.where,
        f"{situation.where}: in {CALLS} calls with {ROWS} rows, {seen} in all of them",
        Cause.DRAWN_TWICE,
        "draw again for each use, and for each component: ops.random.normal(x.shape) gives independent numbers for all "
        "entries",
    )

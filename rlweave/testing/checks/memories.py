"""Memories: they hand out the records that were inserted, and a priority goes to the record it was computed of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlweave.graph.ir import RANDOM_PATHS
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import place_of
from rlweave.testing.checks.subject import Situation, Subject

#: Calls of a method that draws records.
CALLS = 12
#: Share of the draws by which a record has to become more frequent before it counts as preferred.
_PREFERRED = 0.3
_LARGE, _SMALL = 100.0, 1e-3

State = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Drawn:
    """A method that draws records, and the path of their numbers in its result; "" where it does not tell them."""

    situation: Situation
    indices: str

    def frequencies(self, state: State) -> Counter[int]:
        """How often each record is drawn, by number."""
        found: Counter[int] = Counter()
        for seed in range(CALLS):
            found.update(_numbers(_call(self.situation, {}, _reseeded(self.situation, state, seed)), self.indices))
        return found


def _numbers(result: State, path: str) -> list[int]:
    return [int(number) for number in result[f"result/{path}".rstrip("/")]]


def _call(situation: Situation, changed: State, state: State) -> dict[str, np.ndarray]:
    return situation.call(changed, state)


def _after(result: State) -> dict[str, np.ndarray]:
    """The state after a call."""
    return {path.removeprefix("state/"): array for path, array in result.items() if path.startswith("state/")}


def _reseeded(situation: Situation, state: State, seed: int) -> dict[str, np.ndarray]:
    return {**state, **situation.subject.random_state(seed)}


def _writes(situation: Situation) -> bool:
    return any(path not in RANDOM_PATHS for node in situation.graph.nodes for path in node.writes)


def _drawing(subject: Subject) -> Iterator[_Drawn]:
    for situation in subject.situations():
        result = situation.base.result
        if situation.draws and not situation.inputs:
            numbers = [path for path, array in result.items() if array.dtype.kind in "iu" and array.ndim == 1]
            named = [path for path in numbers if "ind" in path.split("/")[-1]]
            placed = [path for path in numbers if "/" not in path]
            yield _Drawn(situation, next(iter([*named, *placed]), ""))


# -- priorities ---------------------------------------------------------------------------------------------------


def priorities_reach_their_rows(subject: Subject) -> Iterator[Finding]:
    """One record gets a priority far above the others; no other one may be drawn more often than before."""
    for situation in subject.situations():
        names = _priority_inputs(situation)
        if names is not None and _writes(situation):
            for drawn in _drawing(subject):
                if drawn.indices:
                    yield from list(_wrong_rows(situation, *names, drawn))[:1]


def _priority_inputs(situation: Situation) -> tuple[str, str] | None:
    """Paths of the numbers of records, and of what becomes their priorities."""
    flat = situation.flat
    numbers = [p for p, x in flat.items() if np.asarray(x).dtype.kind in "iu" and "ind" in p.split("/")[-1]]
    sizes = [
        path
        for path, array in flat.items()
        if np.asarray(array).dtype.kind == "f" and any(word in path for word in ("priorit", "error"))
    ]
    fits = len(numbers) == 1 and len(sizes) == 1 and np.shape(flat[numbers[0]]) == np.shape(flat[sizes[0]])
    return (numbers[0], sizes[0]) if fits else None


def _wrong_rows(situation: Situation, numbers: str, sizes: str, drawn: _Drawn) -> Iterator[Finding]:
    state = situation.subject.calls(0)[-1].state
    before = drawn.frequencies(state)
    held, rows = sorted(before), len(situation.flat[numbers])
    for place in range(min(rows, len(held))):
        order = [held[(place + i) % len(held)] for i in range(rows)]  # the record that is raised is the last one
        raised = order[-1]
        priorities = np.where(np.asarray(order) == raised, _LARGE, _SMALL)
        changed = {
            numbers: np.asarray(order, situation.flat[numbers].dtype),
            sizes: np.asarray(priorities, situation.flat[sizes].dtype),
        }
        after = drawn.frequencies(_after(_call(situation, changed, state)))
        rise = {n: after[n] / after.total() - before[n] / before.total() for n in {*after, *before}}
        most = max(rise, key=lambda n: rise[n])
        if most != raised and rise[most] > _PREFERRED > rise[raised]:
            node = next(n for n in situation.graph.nodes if any(path not in RANDOM_PATHS for path in n.writes))
            yield Finding(
                "priorities",
                place_of(node),
                f"{situation.where} was called with {sizes!r} = {_LARGE:g} for record {raised} and {_SMALL:g} for "
                f"others; of {after.total()} records that {drawn.situation.where} drew then, {after[most]} are record "
                f"{most}, and {after[raised]} record {raised}",
                Cause.PRIORITY_OF_ANOTHER_ROW,
                "write priorities to the very rows that were drawn: self.priorities.assign_at(indices, ...), with the "
                "indices that sampling returned, not positions in the batch or of the newest rows",
            )


# -- records ------------------------------------------------------------------------------------------------------


def records_stay_whole(subject: Subject) -> Iterator[Finding]:
    """Records are inserted and drawn; each that is drawn is one that was inserted, and its leaves are of one row."""
    for drawn in _drawing(subject):
        for situation in subject.situations():
            inserts = _writes(situation) and _priority_inputs(situation) is None
            leaves = _handed_on(situation, drawn.situation) if inserts else {}
            if leaves:
                yield from list(_strange_records(situation, leaves, drawn.situation))[:1]


def _handed_on(insert: Situation, draw: Situation) -> dict[str, str]:
    """Leaves of records by the paths of the inputs: results with the same name."""
    found = {}
    for path, array in insert.flat.items():
        leaf, array = path.partition("/")[2], np.asarray(array)
        same = [
            out
            for out, result in draw.base.result.items()
            if leaf in (out, out.partition("/")[2])
            and result.dtype == array.dtype
            and result.shape[1:] == array.shape[1:]
        ]
        if array.ndim and len(same) == 1:
            found[path] = same[0]
    return found


def _strange_records(insert: Situation, leaves: dict[str, str], draw: Situation) -> Iterator[Finding]:
    inserted, state = _filled(insert)
    drawn: dict[str, list[np.ndarray]] = {path: [] for path in leaves}
    for seed in range(CALLS):
        result = _call(draw, {}, _reseeded(draw, state, seed))
        for path, out in leaves.items():
            drawn[path] += list(result[f"result/{out}".rstrip("/")])
    origins = {path: [_equal(row, inserted[path]) for row in rows] for path, rows in drawn.items()}
    handed_on = {path: rows for path, rows in origins.items() if _is_handed_on(rows, drawn[path])}
    told = [path for path in handed_on if np.asarray(insert.flat[path]).dtype.kind == "f"]
    for path in told:
        strange = sum(not rows for rows in handed_on[path])
        if strange:
            seen = f"{strange} of {len(handed_on[path])} rows of {path!r} that it drew are none of those"
            yield _not_inserted(insert, draw, seen, "draw from the rows that are filled, and from no others")
            return
    if len(handed_on) == len(leaves) and told:
        for rows in zip(*handed_on.values(), strict=True):
            if not frozenset.intersection(*rows):
                seen = f"in a record that it drew {' and '.join(map(repr, handed_on))} are of different ones"
                yield _not_inserted(insert, draw, seen, "read all leaves of a record at the same index")
                return


def _is_handed_on(origins: list[frozenset[int]], rows: list[np.ndarray]) -> bool:
    """Whether a leaf is what went in, and no sum of rewards or stack of frames: most rows are, or all others alike."""
    others = [row.tobytes() for row, found in zip(rows, origins, strict=True) if not found]
    return len(others) < len(rows) / 2 or (len(others) < len(rows) and len(set(others)) == 1)


def _filled(insert: Situation) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two batches: what was inserted, and the state after."""
    state = insert.subject.start
    batches = [insert.flat, insert.flat_others]
    for batch in batches:
        state = _after(_call(insert, batch, state))
    return {path: np.concatenate([np.asarray(batch[path]) for batch in batches]) for path in insert.flat}, state


def _equal(row: np.ndarray, rows: np.ndarray) -> frozenset[int]:
    same = (rows == row).reshape(len(rows), -1).all(-1)
    return frozenset(np.flatnonzero(same).tolist())


def _not_inserted(insert: Situation, draw: Situation, seen: str, fix: str) -> Finding:
    return Finding(
        "records",
        place_of(next(n for n in draw.graph.nodes if any(path in RANDOM_PATHS for path in n.reads))),
        f"{insert.where} was called with two batches, then {draw.where}: {seen}",
        Cause.NEVER_INSERTED,
        fix,
    )

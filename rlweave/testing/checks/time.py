"""Time: what a result at one step may depend on."""

from __future__ import annotations

from collections.abc import Iterator

from rlweave.testing.checks.axes import Along
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import Meaning, meaning_of
from rlweave.testing.checks.movement import Movement
from rlweave.testing.checks.rows import listed, moved_part
from rlweave.testing.checks.subject import Subject

_AHEAD = (
    "use what is known at a step: x[:-1] for what came before; what sums over the future, as returns do, declares "
    "@graph_fn(looks_ahead=True)"
)
_BACK = "row t of a return belongs to step t: it sums rewards[t:] and the values after them; see where an index is off"


def causality(subject: Subject) -> Iterator[Finding]:
    """One time step is sampled anew; no result before it may move, unless its graph function declares `looks_ahead`."""
    for situation in subject.situations():
        returns = Meaning.REWARDS in map(meaning_of, situation.inputs)
        for index in range(1, situation.sizes["T"]):
            changed = situation.with_index(Along.TIME, index)
            if not changed:
                continue
            movement = Movement(Along.TIME, situation.sizes)
            for leak in movement.leaks(situation.base, situation.run(changed), index):
                back = min(leak.indices) > index
                if back and not returns:
                    continue  # what smooths a trajectory looks both ways
                yield Finding(
                    "causality",
                    leak.step.where,
                    f"{situation.where}: step {index} of {listed(changed)} was sampled anew, "
                    f"and {moved_part(leak, 'step')} moved",
                    Cause.LOOKS_BACK if back else Cause.LOOKS_AHEAD,
                    _BACK if back else _AHEAD,
                )

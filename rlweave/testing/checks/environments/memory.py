"""Whether an environment minds what is done with the arrays that it handed out or was given."""

from __future__ import annotations

from typing import Any

from rlweave.testing.checks.environments.inspection import Event, Inspection, first_difference
from rlweave.testing.checks.environments.players import Outcome
from rlweave.testing.checks.environments.values import scribble
from rlweave.testing.checks.findings import Cause


def check_memory(inspection: Inspection) -> None:
    """Plays again, and writes into observations, then into actions, once they were used."""
    what = {
        "observations": "it hands out its own memory: return a copy, self.state.copy()",
        "actions": "it keeps the array of the caller, who may use it again: keep a copy, np.array(action)",
    }
    for which, fix in what.items():
        check = f"writing into {which}"
        written = False

        def write(event: Event, outcome: Outcome, action: Any, which: str = which) -> None:
            nonlocal written
            written = scribble(outcome.observation if which == "observations" else action) or written

        with inspection.check(check):
            player = inspection.subject.make()
            found = first_difference(player, inspection.replayed, write)
            player.close()
            if found is not None and written:
                seen = f"other numbers were written into {which} after each step: {found.text}"
                inspection.note(check, Cause.SHARED_MEMORY, seen, fix)

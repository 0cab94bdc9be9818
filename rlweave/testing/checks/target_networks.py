"""Target networks: they follow the networks that learn, and never the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from rlweave.graph.component import api_methods
from rlweave.graph.ir import RANDOM_PATHS
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.inputs import shaken
from rlweave.testing.checks.recording import same_array, source_line
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.testing.checks.target_names import of_target


def targets_follow(subject: Subject) -> Iterator[Finding]:
    """Whatever brings target networks up to date leaves variables that learn as they are."""
    if not any(of_target(path) for path in subject.variables):
        return
    for situation in subject.situations():
        if _follows(situation):
            state = shaken(subject, situation.state, seed=0)
            after = situation.run({}, state).state
            changed = [p for p, x in after.items() if p not in RANDOM_PATHS and not same_array(x, state[p])]
            wrong = [path for path in changed if path in subject.trainable and not of_target(path)]
            if wrong:
                declared = api_methods(type(subject.eager.root))[situation.method]
                yield Finding(
                    "target networks",
                    f"{situation.where}, {source_line(declared.function)}",
                    f"{situation.where} was called, and {wrong[0]}, which learns, moved"
                    + ("" if any(map(of_target, changed)) else "; no variable of a target did"),
                    Cause.WRONG_WEIGHTS_MOVE,
                    "the target takes from the network that learns: self.target.sync(self.online, tau)",
                )


def _follows(situation: Situation) -> bool:
    """Whether a method brings target networks up to date, by its name; it takes nothing."""
    words = situation.method.split("_")
    named = "sync" in words or "polyak" in words or (words[-1].startswith("target") and len(words) > 1)
    return named and not situation.inputs and not situation.outputs

"""Targets: what is one by its name, and networks that follow those that learn, never the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from rlweave.graph.ir import RANDOM_PATHS
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.inputs import shaken
from rlweave.testing.checks.recording import same_array
from rlweave.testing.checks.subject import Situation, Subject

#: Data of the environment, and what is made of them once, before a loss.
_TARGETS = frozenset(("reward", "rewards", "returns", "advantage", "advantages", "target", "targets"))
#: What multiplies or masks a loss.
_FACTORS = frozenset(("weight", "weights", "discount", "discounts", "mask", "ratio", "ratios", "rhos"))
_FOLLOWING = frozenset(("next", "following", "bootstrap"))
_VALUES = frozenset(("q", "qs", "td", "v", "value", "values"))
_EARLIER = ("old", "behaviour", "behavior")


def is_target(name: str) -> bool:
    """Whether no gradient may pass through an argument (or a leaf of one) into a loss."""
    return any(_is_target(part) for part in name.split("/"))


def _is_target(name: str) -> bool:
    words = name.split("_")
    target_values = words[0] == "target" and not _VALUES.isdisjoint(words)
    return (
        name in _TARGETS or words[0] in _EARLIER or words[-1] in ("target", "targets") or target_values or _next(name)
    )


def is_computed(name: str) -> bool:
    """Whether a target is one that networks have computed, such as advantages: it may come with a gradient."""
    return any(_is_computed(part) for part in name.split("/"))


def _is_computed(name: str) -> bool:
    words = name.split("_")
    targets_of_values = words[-1] in ("target", "targets") and not _VALUES.isdisjoint(words)
    return words[-1] in ("advantage", "advantages") or targets_of_values or _next(name)


def _next(name: str) -> bool:
    words = name.split("_")
    return not (_FOLLOWING.isdisjoint(words) or _VALUES.isdisjoint(words))


def is_data(name: str) -> bool:
    """Whether an argument comes from the environment or a memory, and so without a gradient."""
    last = name.rpartition("/")[2].split("_")[-1]
    return not is_computed(name) and (is_target(name) or last in _FACTORS)


def is_reward(name: str) -> bool:
    """Whether a leaf holds rewards."""
    return name.rpartition("/")[2] in ("reward", "rewards")


def followed(name: str) -> str | None:
    """Of `batch/next_observations/x` the leaf of the step before, `batch/observations/x`; None where it is no such."""
    parts = name.split("/")
    found = [i for i, part in enumerate(parts) if part.startswith("next_")]
    if not found:
        return None
    parts[found[0]] = parts[found[0]].removeprefix("next_")
    return "/".join(parts)


def of_target(path: str) -> bool:
    """Whether a variable is one of a target network; what is checked may have the word in its own name."""
    return any("target" in part for part in path.split("/")[1:-1])


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
                yield Finding(
                    "target networks",
                    situation.place,
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

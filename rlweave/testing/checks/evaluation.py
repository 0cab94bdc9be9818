"""Evaluation: a call that is told not to train moves nothing, and one that is told not to explore draws nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rlweave.graph.component import api_methods
from rlweave.graph.ir import RANDOM_PATHS
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Recording, Step, same_array
from rlweave.testing.checks.subject import Situation, Subject

#: What a parameter is where a call is no training.
EVALUATING = {
    **dict.fromkeys(("training", "train", "is_training", "learning", "update_statistics"), False),
    **dict.fromkeys(("evaluation", "evaluating", "evaluate", "inference", "frozen"), True),
}
#: What a parameter is where the best action is asked for.
GREEDY = {"explore": False, "explores": False, "exploring": False, "deterministic": True, "greedy": True}


def evaluation(subject: Subject) -> Iterator[Finding]:
    """Calls with `training=False` leave variables as they are; with `deterministic=True` no random number counts."""
    for situation in subject.situations():
        for name, told in _told(situation, EVALUATING):
            yield from _learns(told, name)
        for name, told in _told(situation, GREEDY):
            yield from _draws(told, name)


def _told(situation: Situation, meant: dict[str, bool]) -> Iterator[tuple[str, Situation]]:
    """The call with each parameter of some set to a value: ("training=False", call)."""
    declared = api_methods(type(situation.subject.eager.root))[situation.method]
    for name, value in meant.items():
        if name in declared.static:
            yield f"{name}={value}", replace(situation, static={**situation.static, name: value})
        elif name in situation.inputs and np.asarray(situation.arguments[name]).dtype.kind == "b":
            given = np.full_like(situation.arguments[name], value)
            yield f"{name}={value}", replace(situation, arguments={**situation.arguments, name: given})


def _learns(situation: Situation, told: str) -> Iterator[Finding]:
    recording = situation.run({})
    for path, array in situation.state.items():
        count = array.ndim == 0 and array.dtype.kind in "iu"
        if path not in RANDOM_PATHS and not count and not same_array(array, recording.state[path]):
            yield Finding(
                "evaluation",
                _place(situation, next((s for s in recording.steps if path in s.written), None)),
                f"{situation.where} was called with {told}, and variable {path} moved",
                Cause.EVALUATION_LEARNS,
                "update only where the call trains: if training: self._update(...); results of an evaluation may not "
                "depend on what was evaluated before",
            )
            return


def _draws(situation: Situation, told: str) -> Iterator[Finding]:
    one, *others = (situation.run({}, situation.seeded(seed)) for seed in range(3))
    for other in others:
        if any(not same_array(array, other.result[path]) for path, array in one.result.items()):
            yield Finding(
                "evaluation",
                _place(situation, _drew(one)),
                f"{situation.where} was called with {told} from several random states, and its results differ",
                Cause.EVALUATION_DRAWS,
                "return the mode (of categories ops.argmax, of a normal distribution its mean) and leave out noise and "
                "dropout where nothing is to be explored",
            )
            return


def _drew(recording: Recording) -> Step | None:
    return next((step for step in recording.steps if step.drew), None)


def _place(situation: Situation, step: Step | None) -> Any:
    return step.where if step is not None else situation.where

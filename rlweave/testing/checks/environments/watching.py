"""The checks that are made while random steps are played: values, flags, masks, and what changes behind one's back."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from rlweave.envs.contract import LARGEST_REWARD
from rlweave.testing.checks.environments.inspection import Event, Inspection, place_of, tour
from rlweave.testing.checks.environments.players import CallFailed, Outcome, Part, Player, is_true, mask_of
from rlweave.testing.checks.environments.spaces import misfits
from rlweave.testing.checks.environments.values import at, copied, difference, is_array, shown
from rlweave.testing.checks.findings import Cause

#: How many observations are kept and looked at again.
_KEPT = 3


def watch(inspection: Inspection, player: Player) -> None:
    """Plays the steps of an inspection, and checks each outcome; fills `inspection.events`."""
    kept: deque[tuple[int, Outcome, Outcome]] = deque(maxlen=_KEPT)
    with inspection.check("random steps", times=0):
        try:
            for event, action in tour(player, inspection.seed, inspection.steps):
                _look_again(inspection, kept)
                copy = Outcome(*(copied(value) for value in vars(event.outcome).values()))
                inspection.events.append(Event(copy, event.action, event.seed, event.is_reset, event.seconds))
                kept.append((len(inspection.events) - 1, event.outcome, copy))
                _check_action(inspection, event, action)
                for part in player.parts(event.outcome):
                    check_part(inspection, part, player.ended(event.outcome))
        except CallFailed as failure:
            inspection.note_failure("random steps", failure, _after(inspection))
    with inspection.check("random steps", times=sum(not event.is_reset for event in inspection.events)):
        pass


def _after(inspection: Inspection) -> str:
    return f"after {_now(inspection)}: " if inspection.events else ""


def _now(inspection: Inspection) -> str:
    return place_of(inspection.events, len(inspection.events) - 1)


def _look_again(inspection: Inspection, kept: deque[tuple[int, Outcome, Outcome]]) -> None:
    """Looks whether observations and infos that were handed out before are what they were."""
    for number, outcome, copy in kept:
        found = difference(copy.observation, outcome.observation)
        if found is not None:
            path, before, after = found
            inspection.note(
                "aliasing of observations",
                Cause.OBSERVATION_CHANGES_LATER,
                f"{at(path)}the observation of {place_of(inspection.events, number)} was {shown(before)}, and a later "
                f"call made it {shown(after)}",
                "return a copy: observation.copy(), or a new array at each step",
                key=path,
            )
        found = difference(copy.info, outcome.info)
        if found is not None:
            path, before, after = found
            inspection.note(
                "aliasing of infos",
                Cause.INFO_CHANGES_LATER,
                f"{at(path)}the info of {place_of(inspection.events, number)} was {shown(before)}, and a later call "
                f"made it {shown(after)}",
                "return a new dict at each step, with copies of the arrays in it",
                key=path,
            )


def _check_action(inspection: Inspection, event: Event, action: Any) -> None:
    found = None if event.is_reset else difference(event.action, action)
    if found is not None:
        path, before, after = found
        inspection.note(
            "actions stay",
            Cause.INPUT_CHANGED,
            f"{at(path)}the action of {_now(inspection)} was {shown(before)}, and step() made it {shown(after)}",
            "work on a copy: np.clip(action, low, high) without out=, action = action * scale for action *= scale",
            key=path,
        )


def check_part(inspection: Inspection, part: Part, ended: bool) -> None:
    """Checks what one agent got, or the rows of a vector environment."""
    whose = f"agent {part.name!r}, " if part.name else ""
    for misfit in misfits(part.observation_space, part.outcome.observation):
        inspection.note(
            "observations lie in their space",
            Cause.OUTSIDE_OF_SPACE,
            f"{whose}{_now(inspection)}: {at(misfit.path)}the observation: {misfit.seen}",
            misfit.fix,
            key=f"{part.name} {misfit.path} {misfit.kind}",
        )
    if not isinstance(part.outcome.info, dict):
        seen = f"{whose}{_now(inspection)}: the info is {shown(part.outcome.info)}, where a dict is to be"
        inspection.note("infos are dicts", Cause.CANNOT_RUN, seen, "return {}", key=part.name)
    if part.outcome.reward is not None or part.outcome.terminated is not None:
        _check_reward(inspection, part, whose)
        _check_flags(inspection, part, whose)
    _check_mask(inspection, part, whose, ended)


def _check_reward(inspection: Inspection, part: Part, whose: str) -> None:
    wrong = _what_is_wrong(part.outcome.reward, part.rows)
    if wrong:
        what, fix = wrong
        seen = f"{whose}{_now(inspection)}: the reward is {what}"
        inspection.note("rewards are numbers", Cause.BAD_REWARD, seen, fix, key=f"{part.name} {fix}")


def _what_is_wrong(reward: Any, rows: int | None) -> tuple[str, str] | None:
    """What a reward is instead of one finite number (for each row), and the fix."""
    is_number = isinstance(reward, (int, float, np.number, np.bool_)) or is_array(reward)
    array = np.asarray(reward) if is_number else None
    if array is None or array.dtype.kind not in "biuf":
        return f"{shown(reward)} (of type {type(reward).__name__})", "return float(reward)"
    if rows is None and array.shape:
        return f"an array of shape {array.shape}: {shown(array)}", "return float(reward[0]), or the sum that is meant"
    if rows is not None and array.shape != (rows,):
        return f"of shape {array.shape}, where ({rows},) is to be", "return one number for each environment"
    if not np.isfinite(array).all():
        return shown(array), "look for a division by zero, or a root or logarithm of a number below zero"
    largest = float(np.abs(array.astype(np.float64)).max(initial=0.0))
    if largest > LARGEST_REWARD:
        return f"{largest:g}, more than float32 holds", "scale rewards to about 1"
    return None


def _check_flags(inspection: Inspection, part: Part, whose: str) -> None:
    for name in ("terminated", "truncated"):
        flag = getattr(part.outcome, name)
        shape = () if part.rows is None else (part.rows,)
        is_flag = isinstance(flag, (bool, np.bool_)) if part.rows is None else False
        if is_flag or (is_array(flag) and np.asarray(flag).dtype == np.bool_ and np.shape(flag) == shape):
            continue
        fix = f"return bool({name})" if part.rows is None else f"return a bool array of shape ({part.rows},)"
        seen = f"{whose}{_now(inspection)}: {name} is {shown(flag)} (of type {type(flag).__name__})"
        inspection.note("flags are bools", Cause.BAD_ENDS, seen, fix, key=f"{part.name} {name}")


def _check_mask(inspection: Inspection, part: Part, whose: str, ended: bool) -> None:
    mask = mask_of(part.outcome.observation, part.outcome.info)
    over = ended or is_true(part.outcome.terminated) or is_true(part.outcome.truncated)
    number = getattr(part.action_space, "n", None)
    if mask is None or number is None:
        return
    shape = (int(number),) if part.rows is None else (part.rows, int(number))
    array = np.asarray(mask)
    if array.shape != shape or array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        seen = f"the action mask has shape {array.shape} and dtype {array.dtype}: {shown(array)}"
        fix = f"an array of 0 and 1, of shape {shape}, one for each action of {part.action_space}"
        inspection.note("masks allow something", Cause.BAD_MASK, f"{whose}{_now(inspection)}: {seen}", fix)
    elif not array.any(axis=-1).all() and not over:
        seen = f"{whose}{_now(inspection)}: the action mask is {shown(array)}, and the episode goes on"
        fix = "allow an action (doing nothing, or passing), or end the episode there"
        inspection.note("masks allow something", Cause.NOTHING_ALLOWED, seen, fix)


def speed(inspection: Inspection, player: Player) -> None:
    """Notes how fast the environment is."""
    steps = [event.seconds for event in inspection.events if not event.is_reset]
    resets = [event.seconds for event in inspection.events if event.is_reset]
    total = math.fsum(steps)
    if not steps or total <= 0:
        return
    number = next(player.parts(inspection.events[0].outcome)).rows
    rows = "" if number is None else f" of {number} rows each"
    rate, reset = len(steps) / total, 1000 * math.fsum(resets) / max(len(resets), 1)
    inspection.report.facts["speed"] = f"{_rounded(rate)} steps/s{rows}; a reset takes {_rounded(reset)} ms"


def _rounded(rate: float) -> str:
    """Two digits: more would differ in the next run."""
    return f"{float(f'{rate:.2g}'):,.0f}" if rate >= 10 else f"{rate:.2g}"

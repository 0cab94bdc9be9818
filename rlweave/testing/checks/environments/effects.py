"""Whether actions have an effect, and whether the observation of the same step shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.testing.checks.environments.inspection import Event, Inspection, replay
from rlweave.testing.checks.environments.players import CallFailed, Drawing, Outcome
from rlweave.testing.checks.environments.values import at, below, copied, difference, leaves
from rlweave.testing.checks.findings import Cause

_POINTS, _FURTHER, _TRIES, _PARTS = 8, 40, 10, 12


def check_effects(inspection: Inspection) -> None:
    """Takes another action at some steps, and goes on as before: something has to differ."""
    check = "actions have an effect"
    with inspection.check(check):
        steps = [index for index, event in enumerate(inspection.replayed) if not event.is_reset]
        chosen = sorted({steps[len(steps) * point // _POINTS] for point in range(_POINTS)})
        chosen += [index - 1 for index in _resets(inspection.replayed)[:_POINTS] if index]  # last steps of episodes
        effects = []
        for index in chosen:
            effect = _effect(inspection, index)
            effects += [] if effect is None else [effect]
            if effect is not None and effect.lag == 0:
                _check_parts(inspection, [index for index in chosen if index in steps])
                return
        lags = [effect.lag for effect in effects if effect.lag is not None]
        if effects and not any(effect.any for effect in effects):
            inspection.note(
                check,
                Cause.ACTION_IGNORED,
                f"at {len(effects)} steps another action was taken: no observation, reward or end within {_FURTHER} "
                "steps differed",
                "use the action that step() is given; look for a name that is overwritten",
            )
        elif len(lags) > 1 and set(lags) == {1}:
            inspection.advise(
                "observations are new",
                f"another action at {len(lags)} steps changed no observation of the same step, but those of the next",
                "compute the observation after the state has moved on, not before; a delay that is meant is fine",
            )


def _resets(events: list[Event]) -> list[int]:
    return [index for index, event in enumerate(events) if event.is_reset]


@dataclass
class Effect:
    """What another action changed.

    Attributes:
        any: Whether anything: an observation, a reward, an end.
        lag: Steps until an observation did; None: none did.
    """

    any: bool = False
    lag: int | None = None


def _check_parts(inspection: Inspection, points: list[int]) -> None:
    """Changes one leaf or element of the action at a time: each should have an effect somewhere."""
    first = inspection.replayed[points[0]].action
    places = [(path, index) for path, leaf in leaves(first) for index in _elements(leaf)]
    if not 1 < len(places) <= _PARTS:
        return
    for path, index in places:
        effects = []
        for point in points:
            effect = _effect(inspection, point, (path, index))
            effects += [] if effect is None else [effect]
            if effect is not None and effect.any:
                break
        if len(effects) > 2 and not any(effect.any for effect in effects):
            element = f"element {index} of " if index is not None else ""
            inspection.advise(
                "actions have an effect",
                f"{element}{at(path)}the action was changed at {len(effects)} steps: no observation, reward or end "
                f"within {_FURTHER} steps differed",
                "read it in step(), or leave it out of the action space",
            )


def _elements(leaf: Any) -> list[int | None]:
    return list(range(len(leaf))) if np.ndim(leaf) == 1 else [None]


def _merged(action: Any, other: Any, place: tuple[str, int | None], path: str = "") -> Any:
    """An action with one leaf or element of another one."""
    if isinstance(action, dict):
        return {key: _merged(child, other[key], place, below(path, key)) for key, child in action.items()}
    if isinstance(action, (tuple, list)):
        return tuple(_merged(one, other[i], place, below(path, i)) for i, one in enumerate(action))
    if path != place[0]:
        return copied(action)
    if place[1] is None:
        return copied(other)
    mixed = np.array(action)
    mixed[place[1]] = other[place[1]]
    return mixed


def _effect(inspection: Inspection, index: int, place: tuple[str, int | None] | None = None) -> Effect | None:
    """Takes another action, or one with another leaf or element, and goes on as before; None: no other was drawn."""
    events, found = inspection.replayed, Effect()
    player = inspection.subject.make()
    last = Outcome(None, None)
    try:
        for _, _, outcome in replay(player, events[:index]):
            last = outcome
        drawing = Drawing(inspection.seed + 1 + index)
        taken = events[index].action
        drawn = (player.draw(drawing, last) for _ in range(_TRIES))
        if place is not None:
            drawn = (_merged(taken, action, place) for action in drawn)
        other = next((action for action in drawn if difference(action, taken) is not None), None)
        if other is None:
            return None
        for lag, event in enumerate(events[index : index + _FURTHER]):
            if event.is_reset:
                break
            outcome = player.step(copied(event.action if lag else other))
            found.any = found.any or difference(event.outcome.data(), outcome.data()) is not None
            if difference(event.outcome.observation, outcome.observation) is not None:
                found.lag = lag
                break
            if player.ended(outcome):
                break
    except CallFailed:
        found.any = True
    finally:
        player.close()
    return found

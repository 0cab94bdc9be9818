"""Whether actions have an effect, and whether the observation of the same step shows it."""

from __future__ import annotations

import contextlib

from rlweave.testing.checks.environments.inspection import Event, Inspection, replay
from rlweave.testing.checks.environments.players import CallFailed, Drawing, Outcome
from rlweave.testing.checks.environments.values import copied, difference
from rlweave.testing.checks.findings import Cause

_POINTS, _FURTHER, _TRIES = 8, 40, 10


def check_effects(inspection: Inspection) -> None:
    """Takes another action at some steps, and goes on as before: something has to differ."""
    check = "actions have an effect"
    with inspection.check(check):
        steps = [index for index, event in enumerate(inspection.replayed) if not event.is_reset]
        chosen = sorted({steps[len(steps) * point // _POINTS] for point in range(_POINTS)})
        chosen += [index - 1 for index in _resets(inspection.replayed)[:_POINTS] if index]  # last steps of episodes
        lags = []
        for index in chosen:
            lag = _lag(inspection, index)
            if lag == 0:
                return
            lags.append(lag)
        seen = [lag for lag in lags if lag is not None]
        if not seen and lags:
            inspection.note(
                check,
                Cause.ACTION_IGNORED,
                f"at {len(lags)} steps another action was taken: no observation, reward or end within {_FURTHER} steps "
                "differed",
                "use the action that step() is given; look for a name that is overwritten",
            )
        elif len(seen) > 1 and set(seen) == {1}:
            inspection.advise(
                "observations are new",
                f"another action at {len(seen)} steps changed no observation of the same step, but those of the next",
                "compute the observation after the state has moved on, not before; a delay that is meant is fine",
            )


def _resets(events: list[Event]) -> list[int]:
    return [index for index, event in enumerate(events) if event.is_reset]


def _lag(inspection: Inspection, index: int) -> int | None:
    """How many steps after another action an observation differs; 0 where a reward or an end does, None: never."""
    events = inspection.replayed
    player = inspection.subject.make()
    last = Outcome(None, None)
    try:
        for _, _, outcome in replay(player, events[:index]):
            last = outcome
        drawing = Drawing(inspection.seed + 1 + index)
        tried = (player.draw(drawing, last) for _ in range(_TRIES))
        other = next((action for action in tried if difference(action, events[index].action) is not None), None)
        if other is None:
            return None
        for lag, event in enumerate(events[index : index + _FURTHER]):
            if event.is_reset:
                return None
            outcome = player.step(copied(event.action if lag else other))
            if difference(event.outcome.observation, outcome.observation) is not None:
                return lag
            if difference(event.outcome.data(), outcome.data()) is not None:
                return 0
            if player.ended(outcome):
                return None
        return None
    except CallFailed:
        return 0
    finally:
        with contextlib.suppress(Exception):
            player.close()

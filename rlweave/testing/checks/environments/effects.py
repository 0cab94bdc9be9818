"""Whether actions have an effect, and whether the observation of the same step shows it."""

from __future__ import annotations

from dataclasses import dataclass

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
        effects = []
        for index in chosen:
            effect = _effect(inspection, index)
            effects += [] if effect is None else [effect]
            if effect is not None and effect.lag == 0:
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


def _effect(inspection: Inspection, index: int) -> Effect | None:
    """Takes another action and goes on as before; None: no other one was drawn."""
    events, found = inspection.replayed, Effect()
    player = inspection.subject.make()
    last = Outcome(None, None)
    try:
        for _, _, outcome in replay(player, events[:index]):
            last = outcome
        drawing = Drawing(inspection.seed + 1 + index)
        drawn = (player.draw(drawing, last) for _ in range(_TRIES))
        other = next((action for action in drawn if difference(action, events[index].action) is not None), None)
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

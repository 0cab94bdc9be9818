"""Whether episodes end as they say: terminal states, time limits, and the last observation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.testing.checks.environments.inspection import Event, Inspection, replay
from rlweave.testing.checks.environments.players import CallFailed, Drawing, Outcome, Player, SinglePlayer, is_true
from rlweave.testing.checks.environments.shared_state import own_parts
from rlweave.testing.checks.environments.values import difference
from rlweave.testing.checks.findings import Cause

_LIMITS: tuple[str, ...] = (
    "max_steps",
    "max_episode_steps",
    "max_episode_length",
    "max_timesteps",
    "max_length",
    "episode_length",
)
_LIMITS += ("episode_steps", "num_steps", "horizon", "time_limit", "step_limit", "steps_limit")
#: Episodes and actions that are tried to tell a clock from a part of the task.
_EPISODES, _ACTIONS = 3, 4


@dataclass(frozen=True)
class Played:
    """An episode that ended.

    Attributes:
        begin: Index of its reset among the events.
        length: Its steps.
        terminated: Whether it ended in a terminal state.
    """

    begin: int
    length: int
    terminated: bool

    @property
    def end(self) -> int:
        """Index of its last step among the events."""
        return self.begin + self.length


def episodes_of(events: list[Event]) -> list[Played]:
    """The episodes that ended by themselves."""
    found, begin = [], 0
    for index, event in enumerate(events):
        if event.is_reset:
            begin = index
        elif is_true(event.outcome.terminated) or is_true(event.outcome.truncated):
            found.append(Played(begin, index - begin, is_true(event.outcome.terminated)))
    return found


def check_ends(inspection: Inspection, repeats: bool) -> None:
    """Checks the ends of an environment of Gymnasium.

    Args:
        inspection: With the events.
        repeats: Whether the same seed and actions give the same episodes.
    """
    episodes = episodes_of(inspection.events)
    steps = sum(not event.is_reset for event in inspection.events)
    if not episodes:
        limit = inspection.subject.limit
        inspection.skip("time limits", "no episode ended")
        if limit is not None and limit > steps:
            inspection.report.facts["episodes"] = f"none ended; they are cut after {limit} steps"
            return
        inspection.advise(
            "episodes end",
            f"no episode ended within {steps} random steps",
            "give it a time limit (register it with max_episode_steps, or wrap it in gymnasium.wrappers.TimeLimit), "
            "unless it is meant to go on for ever",
        )
        return
    lengths = [episode.length for episode in episodes]
    terminated = sum(episode.terminated for episode in episodes)
    inspection.report.facts["episodes"] = (
        f"{len(episodes)} of {min(lengths)} to {max(lengths)} steps; {terminated} terminated, "
        f"{len(episodes) - terminated} truncated"
    )
    with inspection.check("time limits"):
        _check_declared_limit(inspection, episodes)
        if repeats and inspection.subject.repeats:
            _check_clock(inspection, episodes)
    if inspection.subject.repeats and repeats:
        with inspection.check("the last observation"):
            _check_own_reset(inspection, episodes[0])


def _check_declared_limit(inspection: Inspection, episodes: list[Played]) -> None:
    """Compares the length of cut episodes with the limit that an attribute declares."""
    cut = {episode.length for episode in episodes if not episode.terminated}
    if len(cut) != 1:
        return
    (length,) = cut
    player = inspection.subject.make()
    limits = {
        f"self.{name}": value
        for part in own_parts(player.env)
        for name, value in getattr(part, "__dict__", {}).items()
        if name.strip("_").lower() in _LIMITS and isinstance(value, int) and not isinstance(value, bool)
    }
    if inspection.subject.limit is not None:
        limits["max_episode_steps of the registration"] = inspection.subject.limit
    name = next((name for name, limit in limits.items() if abs(limit - length) == 1), None)
    if name is not None and length not in limits.values():
        inspection.note(
            "time limits",
            Cause.BAD_ENDS,
            f"episodes are cut after {length} steps, where {name} is {limits[name]}",
            f"count the step first, then compare: self.steps += 1; truncated = self.steps >= {name}",
        )


def _check_clock(inspection: Inspection, episodes: list[Played]) -> None:
    """Sets counters back before the last step of terminated episodes: does the episode go on, all else being equal?"""
    candidates = sorted((episode for episode in episodes if episode.terminated), key=lambda episode: -episode.length)
    alone, told = [], False
    for episode in candidates[:_EPISODES]:
        for name, same in _clocks(inspection, episode):
            alone.append((name, episode.length, same))
    for name, length, same in alone:
        if same and all(other for one, _, other in alone if one == name) and not told:
            told = True
            inspection.note(
                "time limits",
                Cause.TIME_LIMIT_AS_TERMINATION,
                f"an episode terminated at step {length}; with {name} set back by one step before, the same action led "
                "to the same observation and reward, and the episode went on: the clock alone ended it",
                f"return truncated=True where {name} reaches its limit, and terminated only for what the task ends by; "
                "else the value of the last state is learned as 0",
            )
    if alone and not told:
        name, length, _ = alone[0]
        inspection.advise(
            "time limits",
            f"{name} alone ended an episode at step {length}, and changed its reward, but no observation shows it",
            "add the time that is left to the observation, or use a policy with a memory",
        )


def _clocks(inspection: Inspection, episode: Played) -> Iterator[tuple[str, bool]]:
    """Counters that alone decide on the end of an episode, and whether the reward stays without them."""
    player = inspection.subject.make()
    events = inspection.events
    history: list[dict[str, Any]] = []
    last = Outcome(None, None)
    for number, _, outcome in replay(player, events[: episode.end]):
        if number >= episode.begin:
            history.append(_numbers(player))
        last = outcome
    try:
        actions = _some_actions(inspection, player, events[episode.end].action, last)
        for name, by in _counters(history).items():
            results = [_without(player, action, name, by) for action in actions]
            decided = [result for result in results if result is not None]
            if decided and all(goes_on for goes_on, _ in decided):
                yield name, all(same for _, same in decided)
    except (CallFailed, TypeError, NotImplementedError, RecursionError, ValueError, AttributeError) as error:
        inspection.skip("clocks in the attributes", f"the environment cannot be copied: {error}"[:200])
    finally:
        player.close()


def _some_actions(inspection: Inspection, player: Player, first: Any, last: Outcome) -> list[Any]:
    drawing = Drawing(inspection.seed + 1)
    return [first, *(player.draw(drawing, last) for _ in range(3 * (_ACTIONS - 1)))]


def _without(player: Player, action: Any, name: str, by: float) -> tuple[bool, bool] | None:
    """Takes the last step twice, the second time with a counter set back.

    Returns:
        Whether the episode then goes on, with the same observation, and whether the reward is the same; None where it
        does not terminate with this action.
    """
    one, other = (SinglePlayer(copy.deepcopy(player.env)) for _ in range(2))
    _set(other, name, by)
    ended, outcome = one.step(copy.deepcopy(action)), other.step(copy.deepcopy(action))
    if not is_true(ended.terminated):
        return None
    goes_on = not is_true(outcome.terminated) and difference(ended.observation, outcome.observation) is None
    return goes_on, difference(ended.reward, outcome.reward) is None


def _numbers(player: Player) -> dict[str, Any]:
    """The attributes that are numbers, of the environment and what it wraps."""
    kinds = (int, float, np.integer, np.floating)
    return {
        f"self.{name}": value
        for part in reversed(own_parts(player.env))
        for name, value in getattr(part, "__dict__", {}).items()
        if isinstance(value, kinds) and not isinstance(value, bool)
    }


def _counters(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers that every step changed by the same, and by how much."""
    found: dict[str, Any] = {}
    for name in history[0] if len(history) > 2 else ():
        values = [numbers[name] for numbers in history if name in numbers]
        if len(values) < len(history):
            continue
        steps = np.diff(np.asarray(values, np.float64))
        if steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0):
            found[name] = values[1] - values[0]
    return found


def _set(player: Player, name: str, by: Any) -> None:
    plain = name.removeprefix("self.")
    for part in own_parts(player.env):
        if plain in getattr(part, "__dict__", {}):
            part.__dict__[plain] -= by


def _check_own_reset(inspection: Inspection, episode: Played) -> None:
    """Counts the calls of reset() within the step that ends an episode."""
    player = inspection.subject.make()
    calls = 0

    def counted(reset: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return reset(*args, **kwargs)

        return call

    for _ in replay(player, inspection.events[: episode.end]):
        pass
    for part in own_parts(player.env):
        if hasattr(part, "__dict__"):
            part.__dict__["reset"] = counted(part.reset)
    player.step(inspection.events[episode.end].action)
    for part in own_parts(player.env):
        getattr(part, "__dict__", {}).pop("reset", None)
    player.close()
    if calls:
        inspection.note(
            "the last observation",
            Cause.FINAL_OBSERVATION_LOST,
            f"step() called reset() in step {episode.length}, which ended the episode, so it returned the first "
            "observation of the next one",
            "return the observation that the step led to; who plays calls reset()",
        )

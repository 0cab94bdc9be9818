"""Whether episodes end as they say: terminal states, time limits, and the last observation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.testing.checks.environments.inspection import Event, Inspection, replay
from rlweave.testing.checks.environments.players import Drawing, Outcome, Player, SinglePlayer, is_true
from rlweave.testing.checks.environments.shared_state import own_parts
from rlweave.testing.checks.environments.values import copied, difference
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
_EPISODES, _ACTIONS, _AHEAD, _SHORT = 3, 9, 10**6, 6


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
            "play longer (steps=...); if it has no end, give it a time limit: register it with max_episode_steps, or "
            "wrap it in gymnasium.wrappers.TimeLimit",
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


@dataclass(frozen=True)
class Clock:
    """A counter that alone decides whether an episode terminates.

    Attributes:
        name: The attribute.
        seen: What was done, and what happened.
        pays: Whether the reward depends on it, too.
    """

    name: str
    seen: str
    pays: bool


def _check_clock(inspection: Inspection, episodes: list[Played]) -> None:
    """Looks for counters that terminate episodes, all else being equal.

    They are set back before last steps, and far ahead in the middle of an episode. A counter that is observed, or that
    changes the reward, is a part of the task.
    """
    terminated = sorted((episode for episode in episodes if episode.terminated), key=lambda episode: -episode.length)
    clocks = []
    try:
        for episode in terminated[:_EPISODES]:
            clocks += list(_clocks(inspection, episode.begin, episode.end, ahead=False))
        longest = max(episodes, key=lambda episode: episode.length)
        if not clocks and longest.length > _SHORT:
            clocks += list(_clocks(inspection, longest.begin, longest.end - longest.length // 2, ahead=True))
    except Exception as error:  # of copying, or of an environment that no such number can be given to
        inspection.skip("clocks in the attributes", f"{type(error).__name__}: {error}"[:200])
    pay = {clock.name for clock in clocks if clock.pays}
    clock = next((clock for clock in clocks if clock.name not in pay), None)
    if clock is not None:
        inspection.note(
            "time limits",
            Cause.TIME_LIMIT_AS_TERMINATION,
            clock.seen,
            f"return truncated=True where {clock.name} reaches its limit, and terminated only for what the task ends "
            "by; else the value of the last state is learned as 0",
        )
    elif clocks:
        inspection.advise(
            "time limits",
            f"{clocks[0].name} alone ends episodes and changes the reward, and no observation shows it",
            "add the time that is left to the observation, or use a policy with a memory",
        )


def _clocks(inspection: Inspection, begin: int, end: int, ahead: bool) -> Iterator[Clock]:
    """Counters that alone decide whether the step of an event terminates.

    Args:
        inspection: With the events.
        begin: The reset before.
        end: The event.
        ahead: Whether counters are set far ahead, which ends an episode that goes on; else back, which lets one go on.
    """
    player = inspection.subject.make()
    events = inspection.events
    history: list[dict[str, Any]] = []
    last = Outcome(None, None)
    for number, _, outcome in replay(player, events[:end]):
        if number >= begin:
            history.append(_numbers(player))
        last = outcome
    drawing = Drawing(inspection.seed + 1)
    actions = [events[end].action, *(player.draw(drawing, last) for _ in range(_ACTIONS))]
    moved, does = (_AHEAD, "terminated") if ahead else (-1, "went on")
    for name, by in _counters(history).items():
        results = [_with_clock(player, action, name, moved * by) for action in actions]
        told = [(decides, same) for decides, same, terminates in results if terminates is not ahead]
        if told and all(decides for decides, _ in told):
            set_to = "set far ahead" if ahead else "set back by one step"
            yield Clock(
                name,
                f"with {name} {set_to} before step {end - begin} of an episode, the same action led to the same "
                f"observation and reward, and the episode {does}: the clock alone decides",
                not all(same for _, same in told),
            )
    player.close()


def _with_clock(player: Player, action: Any, name: str, by: Any) -> tuple[bool, bool, bool]:
    """Takes a step twice, the second time with a counter set.

    Returns:
        Whether only then the episode terminates (or only else), with the same observation; whether the reward is the
        same; whether it terminates without that.
    """
    one, other = (SinglePlayer(copy.deepcopy(player.env)) for _ in range(2))
    _set(other, name, by)
    first, second = one.step(copied(action)), other.step(copied(action))
    decides = is_true(first.terminated) != is_true(second.terminated)
    same = difference(first.observation, second.observation) is None
    return decides and same, difference(first.reward, second.reward) is None, is_true(first.terminated)


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
            part.__dict__[plain] += by


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
    player.step(copied(inspection.events[episode.end].action))
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

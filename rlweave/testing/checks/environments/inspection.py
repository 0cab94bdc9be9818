"""One inspection of an environment: the checks that were made, what they found, and the steps that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rlweave.testing.checks.environments.players import CallFailed, Drawing, Outcome, Player, Subject
from rlweave.testing.checks.environments.values import copied, difference, shown
from rlweave.testing.checks.findings import Cause, Done, Finding, Report

#: Findings that are about a reset, or about what is saved; the others are about steps.
_WRITTEN_IN = {
    Cause.SEED_IGNORED: "reset",
    Cause.NEVER_RESET: "reset",
    Cause.EPISODES_REPEAT: "reset",
    Cause.DRAWN_ONCE: "reset",
    Cause.INCOMPLETE_STATE: "get_state",
}
#: Findings in what the last call gave.
_OF_OUTCOMES = (Cause.OUTSIDE_OF_SPACE, Cause.BAD_MASK, Cause.NOTHING_ALLOWED)
#: Steps that are played again by the checks which need it.
REPLAYED = 250


@dataclass
class Event:
    """A call and what came of it.

    Attributes:
        outcome: A copy of what it gave.
        action: A copy of the action; None for a reset.
        seed: Of a reset.
        is_reset: Whether it was one.
        seconds: How long the environment took.
    """

    outcome: Outcome
    action: Any = None
    seed: int | None = None
    is_reset: bool = False
    seconds: float = 0.0


@dataclass
class Inspection:
    """The state of an inspection.

    Args:
        subject: What is inspected.
        seed: Seeds environments and actions.
        steps: How many steps are played.
    """

    subject: Subject
    seed: int
    steps: int
    report: Report = field(init=False)
    #: What happened, from a new environment on; filled by `tour`.
    events: list[Event] = field(default_factory=list)
    #: The environment that was played first, for the places of findings.
    player: Player | None = None
    _noted: dict[tuple[str, str], tuple[Finding, int]] = field(default_factory=dict)
    _done: dict[str, Done] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.report = Report(self.subject.name)

    @property
    def replayed(self) -> list[Event]:
        """The beginning, which is played again."""
        return self.events[:REPLAYED]

    def note(self, check: str, cause: Cause, seen: str, fix: str, *, where: str = "", key: str = "") -> None:
        """Notes a finding; of several of one key only the first is told, with how often it was seen.

        Args:
            check: Name of the check.
            cause: The likely cause.
            seen: What was done, and what was seen.
            fix: What to do about it.
            where: Place; empty: the method of the environment that it is about.
            key: What tells findings of one check and cause apart, such as a leaf.
        """
        place = (check, f"{cause.name} {key}")
        where = where or self._where(cause)
        finding, times = self._noted.get(place, (Finding(check, where, seen, cause, fix), 0))
        self._noted[place] = finding, times + 1

    def _where(self, cause: Cause) -> str:
        call = _WRITTEN_IN.get(cause, "step")
        if cause in _OF_OUTCOMES and self.events and self.events[-1].is_reset:
            call = "reset"
        place = "" if self.player is None else self.player.place(call)
        return place if place and cause is not Cause.ADVICE else self.subject.name

    def found(self, cause: Cause) -> bool:
        """Whether something of a cause was found."""
        return any(finding.cause is cause for finding, _ in self._noted.values())

    def advise(self, check: str, seen: str, fix: str) -> None:
        """Notes an advice."""
        self.note(check, Cause.ADVICE, seen, fix, key=seen)

    def skip(self, check: str, reason: str) -> None:
        """Notes a check that cannot be made."""
        self.report.left_out[check] = reason

    @contextmanager
    def check(self, name: str, times: int = 1) -> Iterator[None]:
        """Makes a check: counts it, and turns an error of the environment into a finding."""
        begin = time.perf_counter()
        try:
            yield
        except CallFailed as failure:
            self.note_failure(name, failure)
        finally:
            before = self._done.get(name, Done(name, 0, 0.0))
            self._done[name] = Done(name, before.times + times, before.seconds + time.perf_counter() - begin)

    def note_failure(self, check: str, failure: CallFailed, after: str = "") -> None:
        """Notes an error that the environment raised."""
        known = self.player is not None and failure.call in self.player.written_in
        place = failure.place or (self.player.place(failure.call) if known and self.player else "")
        self.note(check, Cause.CANNOT_RUN, after + failure.seen, failure.fix, where=place, key=failure.seen)

    def finish(self) -> Report:
        """The report."""
        for finding, times in self._noted.values():
            more = f" ({times} times in all)" if times > 1 else ""
            seen = finding.seen + more
            self.report.findings.append(Finding(finding.check, finding.where, seen, finding.cause, finding.fix))
        self.report.done = list(self._done.values())
        return self.report


@dataclass(frozen=True)
class Difference:
    """Where a replay first differs.

    Attributes:
        number: Index of the event.
        text: What differs, for a reader.
    """

    number: int
    text: str


def tour(player: Player, seed: int, steps: int) -> Iterator[tuple[Event, Any]]:
    """Plays random steps, episode after episode; yields each call with its outcome and action as they were handed out.

    The first reset has the seed; half-way through, a reset comes even if no episode has ended.
    """
    drawing = Drawing(seed)
    taken, episodes = 0, 0
    event = Event(Outcome(None, None), is_reset=True)
    while taken < steps:
        if not episodes or player.ended(event.outcome) or (taken == steps // 2 and episodes == 1):
            own = seed if not episodes else None
            begin = time.perf_counter()
            outcome = player.reset(own)
            event = Event(outcome, None, own, True, time.perf_counter() - begin)
            episodes += 1
            yield event, None
        action = player.draw(drawing, event.outcome)
        kept = copied(action)
        begin = time.perf_counter()
        outcome = player.step(action)
        event = Event(outcome, kept, seconds=time.perf_counter() - begin)
        taken += 1
        yield event, action


def replay(
    player: Player, events: list[Event], after: Callable[[Event, Outcome, Any], None] | None = None
) -> Iterator[tuple[int, Event, Outcome]]:
    """Makes the calls of events again, and yields index, event and the new outcome.

    Args:
        player: Plays them.
        events: The events.
        after: Called with each event, its new outcome and its new action, once these have been looked at.
    """
    for number, event in enumerate(events):
        action = copied(event.action)
        outcome = player.reset(event.seed) if event.is_reset else player.step(action)
        yield number, event, outcome
        if after is not None:
            after(event, outcome, action)


def first_difference(
    player: Player, events: list[Event], after: Callable[[Event, Outcome, Any], None] | None = None
) -> Difference | None:
    """Makes the calls of events again until something else comes of one; arguments as in `replay`."""
    number = -1
    try:
        for number, event, outcome in replay(player, events, after):
            found = difference(event.outcome.data(), outcome.data())
            if found is not None:
                return Difference(number, f"{place_of(events, number)}: {told(found)}")
    except CallFailed as failure:
        number = min(number + 1, len(events) - 1)
        return Difference(number, f"{place_of(events, number)}: {failure.seen}, which it did not the first time")
    return None


def told(found: tuple[str, Any, Any]) -> str:
    """A difference for a reader."""
    path, first, second = found
    return f"{path.replace('/', ' ', 1)} was {shown(first)}, then {shown(second)}"


def place_of(events: list[Event], number: int) -> str:
    """An event for a reader: the reset or step, and its episode."""
    episode = sum(event.is_reset for event in events[: number + 1])
    begin = max(index for index in range(number + 1) if events[index].is_reset)
    return f"reset {episode}" if begin == number else f"step {number - begin} of episode {episode}"

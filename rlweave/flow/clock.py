"""Time as the plan sees it, so that a test can hold it in its hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a plan and its engine read the time."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Lets that many seconds pass."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def __init__(self) -> None:
        self.now = time.perf_counter
        """Seconds since some fixed moment (bound directly: it is read twice per operator and item)."""

    def sleep(self, seconds: float) -> None:
        """Sleeps that many seconds."""
        time.sleep(seconds)


class FakeClock:
    """A clock that moves only when it is told to: plans with waiting in them are tested in no time.

    >>> clock = FakeClock()
    >>> clock.advance(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds that were let pass so far."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """The same as ``advance``: sleeping takes no real time."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Lets time pass.

        Raises:
            ValueError: If ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock never goes back: advance({seconds})")
        self._now += seconds

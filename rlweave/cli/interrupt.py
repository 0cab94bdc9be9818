"""Ctrl-C as a request that is looked at between steps, not as an exception in the middle of one."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from rlweave.cli.console import warn


class StopRequest:
    """While it is entered, the first Ctrl-C (or SIGTERM) sets `asked`; a second one interrupts at once.

    An interrupt in the middle of an update could leave weights and optimizer of different steps behind. A training
    loop looks at `asked` where all of its state is whole.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._before:  # not entered any more: another handler may still refer to this one
            raise KeyboardInterrupt
        self.asked = True
        warn("stopping at the next report, then saving; once more to stop at once")

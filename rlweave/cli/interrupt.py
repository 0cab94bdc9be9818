"""Ctrl-C as a request between steps, not an exception in the middle of one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from rlweave.cli.console import warn

#: Exit status of a program that Ctrl-C ended.
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds for the program to end by itself after the second request.
_LAST_SECONDS = 2.0


class StopRequest:
    """A context in which the first Ctrl-C (or SIGTERM) asks the training to stop; a second one ends it at once.

    An interrupt in the middle of an update could leave weights and optimizer of different steps behind. A training
    stops where its state is consistent. Python handles signals between two of its instructions only, and a call of
    a compiled program is one: so a thread waits for them, too. It ends the process if the training has not stopped
    within the grace.

    Args:
        stop: Asks the training to stop; called at any moment, so it only sets flags.
        rescue: Saves the last consistent state of a training that did not stop, and tells; called in another thread.
            None means that the training is saving, and will stop then.
        grace: Seconds that it may take to stop.
    """

    def __init__(
        self,
        stop: Callable[[], None] = lambda: None,
        rescue: Callable[[], str | None] = lambda: "",
        grace: float = 10.0,
    ) -> None:
        self.asked = False
        self._stop, self._rescue, self._grace = stop, rescue, grace
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._receiver, self._sender = os.pipe()
        os.set_blocking(self._sender, False)
        self._fd_before = signal.set_wakeup_fd(self._sender, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="stop request", daemon=True)
        self._thread.start()
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._sender)
        self._thread.join()
        os.close(self._receiver)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._before:  # the context has ended: another handler may still refer to this one
            raise KeyboardInterrupt
        self.asked = True
        warn(f"stopping, then saving; within {self._grace:g} seconds, or at once if asked again")
        self._stop()

    def _watch(self) -> None:
        """Ends the process if its main thread does not."""
        if not self._asked_within(None):
            return
        again = self._asked_within(self._grace)
        if again is None:
            text: str | None = ""
            with contextlib.suppress(Exception):  # the process ends in any case
                text = self._rescue()
            if text is not None:
                self._end(f"did not stop within {self._grace:g} seconds; {text}")
            again = self._asked_within(None)
        if again and self._asked_within(_LAST_SECONDS) is None:
            self._end("ended at once")

    def _end(self, text: str) -> None:
        os.write(2, f"{text}\n".encode())
        os._exit(INTERRUPTED)

    def _asked_within(self, seconds: float | None) -> bool | None:
        """Whether a signal arrives within a time; False if the context has ended, None if the time is over."""
        while select.select([self._receiver], [], [], seconds)[0]:
            content = os.read(self._receiver, 1)
            if not content:
                return False
            if content[0] in _SIGNALS:
                return True
        return None

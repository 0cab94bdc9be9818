"""Ctrl-C as a polite request: the item on its way goes through first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopping_on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Makes the first Ctrl-C call ``stop``; the second one interrupts at once, as usual.

    Does nothing outside the main thread (Python allows no handlers there), or where the program has set a handler of
    its own.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

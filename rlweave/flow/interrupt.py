"""Ctrl-C as a polite request: the item on its way goes through first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopping_on_interrupt(stop: Callable[[], None], stopped: Callable[[], bool]) -> Iterator[None]:
    """Makes the first Ctrl-C call ``stop``; the second one interrupts at once, as usual.

    Does nothing outside the main thread (Python allows no handlers there), or where the program has set a handler of
    its own. (A handler that only delays interrupts, as component graphs install one, says by `hands_on_to` whom it
    hands them to; it is put back afterwards, and gets the second Ctrl-C.)

    An iterator over reports that is left halfway keeps its handler for as long as somebody keeps the iterator. Where
    its plan is stopped, a newer one takes its place; and whenever it goes, it leaves newer handlers alone.

    Args:
        stop: Called at the first Ctrl-C.
        stopped: Whether there is nothing more to stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = signal.getsignal(signal.SIGINT)
    while getattr(found, "stopped", bool)():  # of a plan that is over
        found = getattr(found, "before", signal.default_int_handler)
    hands_on_to = getattr(found, "hands_on_to", None)
    behind = found if hands_on_to is None else hands_on_to()
    if behind is not signal.default_int_handler:
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, found)
        stop()

    on_interrupt.only_sets_a_flag = True  # type: ignore[attr-defined]
    on_interrupt.stopped, on_interrupt.before = stopped, found  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        in_main = threading.current_thread() is threading.main_thread()  # others may be who lets go of the iterator
        if in_main and signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, found)

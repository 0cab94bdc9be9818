"""Ctrl-C stops a plan after the current item."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class PlanInterrupt:
    """The handler of Ctrl-C while a plan runs: stops it, and gives the handler before it its place back.

    A plan may run while another one does: in its operators, or because somebody keeps an iterator over reports that was
    left halfway. The handler of the newest one stops them all, so that the second Ctrl-C always interrupts at once.

    Args:
        stop: Stops the plan.
        stopped: Whether there is nothing more to stop.
        found: The handler that was there before.
    """

    only_sets_a_flag = True
    """What a component graph looks for, which delays interrupts by handlers that would tear a call apart."""

    def __init__(self, stop: Callable[[], None], stopped: Callable[[], bool], found: Any) -> None:
        self.stop, self.stopped = stop, stopped
        self.over = False
        """Whether its run has ended: then it is not put back when a newer one ends."""
        self.older = found if isinstance(found, PlanInterrupt) else None
        self.base: Any = found if self.older is None else self.older.base
        for _ in self._chain():
            pass  # lets go of those that are over

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stops all plans that run; interrupts if they were stopped already."""
        signal.signal(signal.SIGINT, self.base)
        running = [handler for handler in self._chain() if not (handler.over or handler.stopped())]
        for handler in running:
            handler.stop()
        if not running:
            signal.raise_signal(signal.SIGINT)

    def give_back(self) -> None:
        """Puts the handler back that was there before, unless a newer one is there now."""
        self.over = True
        current: Any = signal.getsignal(signal.SIGINT)
        if current is self:
            older = (handler for handler in self._chain() if not (handler.over or handler.stopped()))
            signal.signal(signal.SIGINT, next(older, self.base))

    def _chain(self) -> Iterator[PlanInterrupt]:
        handler: PlanInterrupt | None = self
        while handler is not None:
            while handler.older is not None and handler.older.over:
                handler.older = handler.older.older  # it would keep its plan
            yield handler
            handler = handler.older


@contextlib.contextmanager
def stopping_on_interrupt(stop: Callable[[], None], stopped: Callable[[], bool]) -> Iterator[None]:
    """Makes the first Ctrl-C call ``stop``; the second one interrupts at once, as usual.

    Does nothing outside the main thread (Python allows no handlers there), or where the program has set a handler of
    its own. (A handler that only delays interrupts, as component graphs install one, names by `hands_on_to` the handler
    that gets them; it is put back afterwards, and gets the second Ctrl-C.)

    Args:
        stop: Called at the first Ctrl-C.
        stopped: Whether there is nothing more to stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = PlanInterrupt(stop, stopped, signal.getsignal(signal.SIGINT))
    hands_on_to = getattr(handler.base, "hands_on_to", None)
    behind = handler.base if hands_on_to is None else hands_on_to()
    if behind is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # another thread may release the iterator
            handler.give_back()
        else:
            handler.over = True

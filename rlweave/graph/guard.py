"""The guard around calls that write state: one thread at a time, and interrupts wait until state is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlweave.graph.store import Snapshot

_state: dict[str, Any] = {"installed": False, "depth": 0, "pending": False, "previous": None}


def _on_interrupt(signum: int, frame: FrameType | None) -> None:
    if _state["depth"]:
        _state["pending"] = True
        return
    _hand_on(signum, frame)


def _hand_on(signum: int, frame: FrameType | None) -> None:
    """What happens without a guarded call: the handler that was there before."""
    previous: Any = _state["previous"]
    if callable(previous):
        previous(signum, frame)
    else:
        raise KeyboardInterrupt


_on_interrupt.hands_on_to = lambda: _state["previous"]  # type: ignore[attr-defined]


def install() -> None:
    """Lets Ctrl-C wait for the end of a guarded call (main thread only; asked for by every build)."""
    if threading.current_thread() is not threading.main_thread():
        return
    current = signal.getsignal(signal.SIGINT)
    if current is _on_interrupt or current is signal.SIG_IGN or current is None:
        return
    if getattr(current, "only_sets_a_flag", False):
        return  # it cannot tear a call apart, and puts the handler before it back
    _state["previous"] = current
    signal.signal(signal.SIGINT, _on_interrupt)
    _state["installed"] = True


_MAIN = threading.main_thread().ident


class Guard:
    """Lock of one executor that defers interrupts of the main thread while it is held.

    Args:
        lock: What it holds.
        snapshots: What was read before and after a write is another thing: these forget what they took.
    """

    __slots__ = ("_lock", "_snapshots")

    def __init__(self, lock: Any, snapshots: Sequence[Snapshot]) -> None:
        self._lock, self._snapshots = lock, snapshots

    def __enter__(self) -> None:
        # counted first: an interrupt between the two lines would leave the lock taken for ever
        if threading.get_ident() == _MAIN:
            _state["depth"] += 1
        self._lock.acquire()
        for snapshot in self._snapshots:
            snapshot.arrays = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for snapshot in self._snapshots:
            snapshot.arrays = None  # again: what runs inside may have taken it
        self._lock.release()
        if threading.get_ident() == _MAIN:
            _state["depth"] -= 1
            if _state["pending"] and not _state["depth"]:
                _state["pending"] = False
                _on_interrupt(signal.SIGINT, None)

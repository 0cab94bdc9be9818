"""The guard around calls that write state: one thread at a time, and interrupts wait until state is whole."""

from __future__ import annotations

import signal
import threading
from threading import get_ident
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlweave.graph.store import Store

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


def install_guard() -> None:
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
    """Lock of a store for writes, which defers interrupts of the main thread while it is held.

    Runs that only read take no lock: they learn from the store that it was written to meanwhile, and run again.

    Args:
        store: The state.
    """

    __slots__ = ("_acquire", "_release", "_store")

    def __init__(self, store: Store) -> None:
        self._store, self._acquire, self._release = store, store.lock.acquire, store.lock.release

    def __enter__(self) -> None:
        # counted first: an interrupt between the two lines would leave the lock taken for ever
        if get_ident() == _MAIN:
            _state["depth"] += 1
        self._acquire()
        store = self._store
        store.version += 1
        store.writing += 1
        if store.snapshots:
            store.forget_snapshots()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        if store.snapshots:
            store.forget_snapshots()  # again: what ran inside may have taken one
        store.version += 1  # before the next line: a reader in between must see one of the two
        store.writing -= 1
        self._release()
        if get_ident() == _MAIN:
            _state["depth"] -= 1
            if _state["pending"] and not _state["depth"]:
                _state["pending"] = False
                _on_interrupt(signal.SIGINT, None)

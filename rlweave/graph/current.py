"""The trace and the build in progress in this thread, and the lock that lets one build run at a time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlweave.errors import BuildError

TRACE: ContextVar[Any] = ContextVar("rlweave_trace", default=None)
SESSION: ContextVar[Any] = ContextVar("rlweave_session", default=None)

#: One build (or lowering) at a time: components hold what their last build gave them.
BUILD_LOCK = threading.RLock()


def current_trace() -> Any:
    """The `Trace` in progress in this thread, or None."""
    return TRACE.get()


def current_session() -> Any:
    """The `Session` of the build in progress in this thread, or None."""
    return SESSION.get()


def require_trace(what: str) -> Any:
    """The trace in progress, or an error that says that `what` belongs into an API method."""
    trace = current_trace()
    if trace is None:
        raise BuildError(f"{what} was called outside a graph", fix="call it inside an API method of a component")
    return trace


@contextmanager
def tracing(trace: Any) -> Iterator[None]:
    """Makes a trace (and its session) the current one."""
    token, session_token = TRACE.set(trace), SESSION.set(trace.session)
    try:
        yield
    finally:
        TRACE.reset(token)
        SESSION.reset(session_token)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses the cyclic garbage collector.

    A build makes many objects that stay, and each collection goes through those of the frameworks as well: up to a
    third of the time of a build. Where somebody else has switched the collector off, it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

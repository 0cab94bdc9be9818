"""The trace and the build in progress in this thread, for what stands below both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlweave.errors import BuildError

TRACE: ContextVar[Any] = ContextVar("rlweave_trace", default=None)
SESSION: ContextVar[Any] = ContextVar("rlweave_session", default=None)


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

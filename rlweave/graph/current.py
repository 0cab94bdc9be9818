"""The trace and the build in progress in this thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rlweave.errors import BuildError

if TYPE_CHECKING:
    from rlweave.graph.session.inference import Session
    from rlweave.graph.trace import Trace

TRACE: ContextVar[Trace | None] = ContextVar("rlweave_trace", default=None)
SESSION: ContextVar[Any] = ContextVar("rlweave_session", default=None)


def current_trace() -> Trace | None:
    """The trace in progress in this thread."""
    return TRACE.get()


def current_session() -> Session | None:
    """The build in progress in this thread."""
    session: Session | None = SESSION.get()
    return session


def require_trace(what: str) -> Trace:
    """The trace in progress, or an error that says that `what` belongs into an API method."""
    trace = current_trace()
    if trace is None:
        raise BuildError(f"{what} was called outside a graph", fix="call it inside an API method of a component")
    return trace


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Makes a trace (and its session) the current one."""
    token, session_token = TRACE.set(trace), SESSION.set(trace.session)
    try:
        yield
    finally:
        TRACE.reset(token)
        SESSION.reset(session_token)

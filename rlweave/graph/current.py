"""The trace and the build in progress in this thread."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlweave.graph.session import Session
    from rlweave.graph.trace import Trace

TRACE: ContextVar[Trace | None] = ContextVar("rlweave_trace", default=None)
SESSION: ContextVar[Session | None] = ContextVar("rlweave_session", default=None)


def current_trace() -> Trace | None:
    """The trace in progress in this thread."""
    return TRACE.get()


def current_session() -> Session | None:
    """The build in progress in this thread."""
    return SESSION.get()

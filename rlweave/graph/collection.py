"""Garbage collection while a graph is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

"""Errors that cross a process border with their cause and traceback.

Factories, items and errors all travel by Ray's own cloudpickle. It knows a class of a script or a notebook again that
went to an actor and comes back, so that ``isinstance`` and ``except`` hold on both sides; two kinds of it would not.
"""

from __future__ import annotations

import traceback
from typing import NamedTuple

from ray import cloudpickle


class RemoteError(Exception):
    """Stands for an error of another process that cannot be made anew here; its text is the original one's."""


class PackedError(NamedTuple):
    """An error on its way to another process.

    Attributes:
        pickled: The error itself, if it can be pickled; else empty.
        text: Its type and message.
        trace: The traceback as text, causes included.
        cause: The error behind it.
    """

    pickled: bytes
    text: str
    trace: str
    cause: PackedError | None

    def unpacked(self) -> Exception:
        """The error with its cause, and with the original traceback as a note at the outermost one."""
        error = self._rebuilt()
        innermost = error
        while isinstance(innermost.__cause__, Exception):
            innermost = innermost.__cause__
        innermost.add_note(f"\nOriginal traceback, in the actor:\n\n{self.trace}")
        return error

    def _rebuilt(self) -> Exception:
        error: Exception | None = None
        if self.pickled:
            try:
                error = cloudpickle.loads(self.pickled)
            except Exception:  # an error whose constructor takes other arguments than it passes on
                error = None
        if not isinstance(error, Exception):
            error = RemoteError(self.text)
        if self.cause is not None:
            error.__cause__ = self.cause._rebuilt()
        return error


def packed(error: BaseException) -> PackedError:
    """An error as data that can always be pickled."""
    return _packed(error, "".join(traceback.format_exception(error)))


def _packed(error: BaseException, trace: str) -> PackedError:
    try:
        pickled = cloudpickle.dumps(error.with_traceback(None))
        cloudpickle.loads(pickled)
    except Exception:
        pickled = b""
    cause = None if error.__cause__ is None else _packed(error.__cause__, "")
    text = f"{type(error).__name__}: {error}"
    return PackedError(pickled, text, trace, cause)

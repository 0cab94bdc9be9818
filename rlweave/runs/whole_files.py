"""Files that are written completely or not at all, also on a full disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; the file there replaces another one when it is complete. It has the same suffix."""
    path = Path(path)
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: str) -> None:
    """Writes a file; an earlier one is replaced when the new one is complete.

    Args:
        path: The file.
        content: All of it, written as UTF-8, with line ends as they are.

    Raises:
        OSError: It cannot be written; an earlier file is unchanged.
    """
    with replacing(path) as partial:
        partial.write_bytes(content.encode())


def append_whole(path: str | os.PathLike[str], content: str) -> None:
    """Appends text (UTF-8) to a file, all of it or nothing.

    Raises:
        OSError: It cannot be written; the file is unchanged.
    """
    path = Path(path)
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(content.encode())
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise

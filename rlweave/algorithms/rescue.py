"""The last whole state of a training, for when its process has to end in the middle of a step.

Between two steps of a plan the state is consistent, and can be saved there. A step may take minutes,
though (an update of many epochs, the first call of a compiled program), and nothing can be saved in the middle of it.
So where steps have been long, the state before each of them is kept; where they are short, nothing is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: A step counts as long if it takes this share of the time in which a training has to stop.
_LONG_SHARE = 0.25
#: How much the longest step so far counts less with every further one: compiling is long once.
_FORGETTING = 0.8

Write = Callable[[], Path]


class Rescue:
    """Keeps what can be saved while a training cannot be looked at.

    Args:
        keep: Copies the state as it is now, and gives what writes it; None where it is too large to be kept.
        save: Writes the state as it is now.
        grace: Seconds in which the training has to stop.
    """

    def __init__(self, keep: Callable[[], Write | None], save: Write, grace: float) -> None:
        self._keep, self._save, self._grace = keep, save, grace
        self._kept: Write | None = None
        self._whole = threading.Event()
        self._lock = threading.RLock()
        self._saving = False
        self._began_at: float | None = None
        self._longest = 0.0

    def between_steps(self) -> None:
        """Hears that the state is whole, and that the next step begins."""
        now = time.monotonic()
        if self._began_at is not None:
            self._longest = max(now - self._began_at, _FORGETTING * self._longest)
        self._kept = self._keep() if self._longest > _LONG_SHARE * self._grace else None
        self._began_at = time.monotonic()

    def no_step(self) -> None:
        """Hears that the last step is over, and none begins."""
        self._began_at = None

    @contextmanager
    def state_is_whole(self) -> Iterator[None]:
        """While something takes long that changes no state."""
        self._whole.set()
        try:
            yield
        finally:
            self._whole.clear()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """While the training is being saved."""
        with self._lock:
            self._saving, self._kept = True, None  # what is saved is newer
            try:
                yield
            finally:
                self._saving = False

    def is_saving(self) -> bool:
        """Whether the training is being saved."""
        return self._saving

    def save(self) -> Path | None:
        """Writes the last whole state that there is, from another thread.

        Returns:
            The checkpoint; None where nothing newer can be had than what has been saved already.
        """
        with self._lock:
            if self._whole.is_set():
                return self._save()
            return None if self._kept is None else self._kept()

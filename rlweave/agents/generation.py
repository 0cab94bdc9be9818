"""A generation of evolution strategies: who plays where, and what was gained."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Generation:
    """Mirrored pairs of perturbed policies, each of which plays one episode in one of a few slots.

    The first members begin at once, one per slot; whoever comes next takes over the slot of who has finished. Only the
    episode that a member plays as its slot's own counts, whatever is played in a slot after that.

    Args:
        offsets: Where the noise of each pair begins, int32 (n,). Member 2 i has the sign +1 of pair i, 2 i + 1 has -1.
        slots: Members that play at a time; at most 2 n.
    """

    def __init__(self, offsets: npt.NDArray[np.int32], slots: int) -> None:
        self.offsets = offsets
        self.returns = np.full((len(offsets), 2), np.nan, np.float32)
        self._members = np.arange(slots)
        self._playing = np.ones(slots, np.bool_)
        self._next = slots

    @property
    def complete(self) -> bool:
        """Whether all members have played."""
        return not self._playing.any()

    def placed(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Offset and sign of the member in each slot, (slots,) twice."""
        return self.offsets[self._members // 2], np.where(self._members % 2, -1.0, 1.0).astype(np.float32)

    def finish(self, slot: int, episode_return: float) -> bool:
        """Notes the episode that ended in a slot.

        Returns:
            Whether another member is in this slot now.
        """
        if not self._playing[slot]:
            return False
        self.returns.reshape(-1)[self._members[slot]] = episode_return
        if self._next == self.returns.size:
            self._playing[slot] = False
            return False
        self._members[slot] = self._next
        self._next += 1
        return True

"""Rollouts of a fixed shape from the steps of rows that come and go."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rlweave.flow import ABSORBED, Envelope, Operator, SampleBatch
from rlweave.flow.envelope import Pulled, merge
from rlweave.flow.item_types import Signature, positive
from rlweave.tree import tree_map

#: Columns that say where a step belongs; they are left out of rollouts.
SLOT, BEGINS = "slot", "begins"


class PackTrajectories(Operator):
    """Packs steps into rollouts (steps, columns, ...), of exactly that shape, as soon as there are enough.

    Agents that end early or are not asked in every step make fewer steps than others, so a column cannot belong to one
    of them. Here the steps of each row of the environments, in order, are laid end to end, and the whole is cut into
    columns. Where steps of two rows meet, the first is marked as truncated: its value bootstraps from the observation
    that it led to, as at the end of a rollout, and nothing flows across. While every row makes all steps, columns are
    rows.

    Steps are taken in the order in which they came; the newest that do not fit any more wait for the next rollout.
    Where items of a source are missing (dropped as too old, lost), its rows do not follow on what was kept of them.

    Args:
        steps: Length T of a rollout.
        columns: Width B of a rollout.
    """

    at_source: ClassVar[bool] = False
    merges: ClassVar[bool] = True
    state = ("_made", "_kept", "_last")

    def __init__(self, steps: int, columns: int) -> None:
        self.steps = positive("steps", steps, "pack_trajectories")
        self.columns = positive("columns", columns, "pack_trajectories")
        self._kept: list[Envelope] = []
        self._last: dict[str, int] = {}
        self._made = 0

    def signature(self) -> Signature:
        """Takes and gives batches."""
        return Signature(SampleBatch, SampleBatch)

    def process(self, envelope: Envelope) -> Pulled:
        """Keeps the steps, and gives a rollout when there are enough."""
        last = self._last.get(envelope.source)
        self._last[envelope.source] = envelope.sequence
        if envelope.payload.num_steps:
            if last is not None and envelope.sequence != last + 1:
                envelope = envelope.carrying(beginning_anew(envelope.payload))
            self._kept.append(envelope)
        wanted = self.steps * self.columns
        if sum(kept.payload.num_steps for kept in self._kept) < wanted:
            return ABSORBED
        return self._release(wanted, self.columns)

    def _release(self, wanted: int, columns: int) -> Envelope:
        rows = SampleBatch.concat([kept.payload for kept in self._kept])
        item = merge(self._kept, packed(rows.slice(0, wanted), columns), self.name, self._made)
        self._made += 1
        rest = rows.slice(wanted, rows.num_steps)
        self._kept = [self._kept[-1].carrying(rest.copy())] if rest.num_steps else []
        return item

    def flush(self) -> list[Envelope]:
        """What is left, as a rollout of one column."""
        left = sum(kept.payload.num_steps for kept in self._kept)
        return [self._release(left, 1)] if left else []

    def note(self) -> str:
        """The shape of rollouts."""
        return f"steps={self.steps}, columns={self.columns}"


def beginning_anew(rows: SampleBatch) -> SampleBatch:
    """The same steps (N, ...), of which the first of each row follows on none."""
    begins = np.array(rows[BEGINS])
    begins[np.unique(rows[SLOT], return_index=True)[1]] = True
    return SampleBatch({**rows.data, BEGINS: begins})


def packed(rows: SampleBatch, columns: int) -> SampleBatch:
    """Steps as rollouts.

    Args:
        rows: Steps in the order in which they were made, (N, ...), N a multiple of `columns`. `slot`, int (N,), says
            which row of the environments made each, and `begins`, bool (N,), where it does not follow the step before
            of its row.
        columns: Width B.

    Returns:
        The same without these two, (N / B, B, ...).
    """
    slots = rows[SLOT]
    order = np.argsort(slots, kind="stable")
    slots, begins = slots[order], rows[BEGINS][order]
    meets = np.append((slots[1:] != slots[:-1]) | begins[1:], False)
    data = {
        key: tree_map(lambda leaf: leaf[order], value) for key, value in rows.data.items() if key not in (SLOT, BEGINS)
    }
    data["truncated"] = data["truncated"] | (meets & ~data["terminated"])
    return SampleBatch(
        {key: tree_map(lambda leaf: _in_columns(leaf, columns), value) for key, value in data.items()},
        "trajectories",
    )


def _in_columns(leaf: np.ndarray, columns: int) -> np.ndarray:
    return np.ascontiguousarray(leaf.reshape(columns, -1, *leaf.shape[1:]).swapaxes(0, 1))

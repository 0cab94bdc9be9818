"""Steps of parallel environments, collected into rollouts (T, B, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.tree import tree_map

Rows = Mapping[str, Any]


class TrajectoryColumns:
    """Columns of T steps, each of one environment in order; B of them make a rollout.

    Where each vector step gives a transition of every environment, column b is that of environment b. Some vector
    environments (foreign ones with NEXT_STEP autoreset) give none of an environment that they reset, so that those with
    long episodes get ahead. A rollout then has the B columns that were complete first, of whichever environments. So no
    step is lost, at most B T steps are in columns that are not complete, and fewer than B columns wait: an environment
    completes a column in at most 2 T vector steps, and a column waits for at most as many. No step is older than 4 T
    vector steps when it is handed out.

    Args:
        steps: T.
        num_envs: B.
    """

    def __init__(self, steps: int, num_envs: int) -> None:
        self.steps, self.num_envs = steps, num_envs
        self._columns = np.arange(num_envs)
        self._first: TrajectoryColumns | None = None
        self._second: TrajectoryColumns | None = None
        self.clear()

    def lie_beside(self, first: TrajectoryColumns) -> None:
        """Shares arrays with other columns, behind those, so that rollouts of both are joined without a copy."""
        self._first, first._second = first, self

    def clear(self) -> None:
        """Drops all steps."""
        self._open: Any = None
        self._forget_arrays()
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._complete: list[Any] = []

    def _forget_arrays(self) -> None:
        #: The arrays of `_open`, shared with the neighbours; those of the last rollout; those with room left.
        self._arrays: Any = None
        self._handed_out: Any = None
        self._room: Any = None

    def state_dict(self) -> dict[str, Any]:
        """The steps that were not handed out."""
        return {"open": self._open, "lengths": self._lengths, "complete": list(self._complete)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self._open, self._lengths, self._complete = state["open"], state["lengths"], list(state["complete"])
        self._forget_arrays()

    def add(self, rows: Rows, valid: np.ndarray) -> None:
        """Adds a vector step.

        Args:
            rows: Its arrays, nested (B, ...).
            valid: The environments of which it is a transition, bool (B,).
        """
        if self._open is None:
            self._begin(rows)
        first = int(self._lengths[0])
        if valid.all() and (self._lengths == first).all():
            tree_map(lambda into, row: into.__setitem__(first, row), self._open, rows)
            self._lengths += 1
            return
        chosen = self._columns[valid]
        at = (self._lengths[chosen], chosen)
        tree_map(lambda into, row: into.__setitem__(at, np.asarray(row)[chosen]), self._open, rows)
        self._lengths[chosen] += 1

    def take(self) -> Any:
        """The next rollout, nested (T, B, ...), in arrays of its own; None if it is not complete yet."""
        full = self._lengths == self.steps
        if not full.any():
            return None
        if full.all() and not self._complete:
            rollout, self._open = self._open, None
            self._handed_out, self._arrays = self._arrays, None
            self._lengths[:] = 0
            return rollout
        for column in full.nonzero()[0].tolist():
            self._complete.append(tree_map(lambda into, c=column: into[:, c].copy(), self._open))
        self._lengths[full] = 0
        if len(self._complete) < self.num_envs:
            return None
        oldest, self._complete = self._complete[: self.num_envs], self._complete[self.num_envs :]
        return tree_map(lambda *columns: np.stack(columns, axis=1), *oldest)

    def take_both(self) -> Any:
        """The rollouts of these columns and their neighbours, nested (T, B + B', ...), after both were taken.

        Returns:
            The shared arrays; None if the two rollouts are not in them.
        """
        assert self._second is not None
        own, others = self._handed_out, self._second._handed_out
        self._handed_out = self._second._handed_out = None
        return own if own is others else None

    def _begin(self, rows: Rows) -> None:
        """Allocates the arrays of a rollout, or takes those that are shared."""
        if self._first is not None and self._first._room is not None:
            self._arrays, self._first._room = self._first._room, None
            self._open = tree_map(lambda array: array[:, -self.num_envs :], self._arrays)
        elif self._second is not None:
            width = self.num_envs + self._second.num_envs
            self._arrays = self._room = tree_map(lambda row: self._allocate(row, width), rows)
            self._open = tree_map(lambda array: array[:, : self.num_envs], self._arrays)
        else:
            self._open = tree_map(lambda row: self._allocate(row, self.num_envs), rows)

    def _allocate(self, row: Any, width: int) -> np.ndarray:
        array = np.asarray(row)
        return np.zeros((self.steps, width, *array.shape[1:]), array.dtype)

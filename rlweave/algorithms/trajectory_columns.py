"""Steps of environments that stand side by side, put together into rollouts (T, B, ...)."""

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
        self.clear()

    def clear(self) -> None:
        """Forgets all steps."""
        self._open: Any = None
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._complete: list[Any] = []

    def state_dict(self) -> dict[str, Any]:
        """The steps that were not handed out."""
        return {"open": self._open, "lengths": self._lengths, "complete": list(self._complete)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self._open, self._lengths, self._complete = state["open"], state["lengths"], list(state["complete"])

    def add(self, rows: Rows, valid: np.ndarray) -> None:
        """Adds a vector step.

        Args:
            rows: What to keep of it, nested (B, ...).
            valid: Of which environments it is a transition, bool (B,).
        """
        if self._open is None:
            self._open = tree_map(self._allocate, rows)
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
            self._lengths[:] = 0
            return rollout
        for column in full.nonzero()[0].tolist():
            self._complete.append(tree_map(lambda into, c=column: into[:, c].copy(), self._open))
        self._lengths[full] = 0
        if len(self._complete) < self.num_envs:
            return None
        oldest, self._complete = self._complete[: self.num_envs], self._complete[self.num_envs :]
        return tree_map(lambda *columns: np.stack(columns, axis=1), *oldest)

    def _allocate(self, row: Any) -> np.ndarray:
        array = np.asarray(row)
        return np.zeros((self.steps, *array.shape), array.dtype)

"""Recurrent states outside of the graph: of named environments, and along a vector of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlweave.agents.trajectories import stack
from rlweave.spaces import Space
from rlweave.tree import tree_map

Names = Sequence[Any]


class RecurrentStates:
    """Recurrent states of environments by name. One that is not known starts an episode.

    Args:
        space: Of the state of one environment, without ranks.
    """

    def __init__(self, space: Space) -> None:
        self._zeros, self._none = space.zeros(), space.with_batch_rank().zeros(0)
        self._states: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._states)

    def gather(self, names: Names) -> tuple[Any, np.ndarray]:
        """States (B, ...) and episode starts, bool (B,), of named environments."""
        states = stack([self._states.get(name, self._zeros) for name in names]) if names else self._none
        return states, np.array([name not in self._states for name in names], np.bool_)

    def keep(self, names: Names, states: Any) -> None:
        """Takes over the states (B, ...) after a step of named environments."""
        for row, name in enumerate(names):
            self._states[name] = tree_map(operator.itemgetter(row), states)

    def forget(self, names: Iterable[Any] | None = None) -> None:
        """The next step of these environments (None: of all) is the first of an episode."""
        for name in list(self._states) if names is None else names:
            self._states.pop(name, None)

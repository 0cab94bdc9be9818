"""How a rollout is cut into minibatches: into rows, or into whole sequences where networks have a memory."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph, ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, Dict, IntBox, Space


class RowMinibatches(Component):
    """Minibatches of single steps, in any order.

    Args:
        count: Minibatches in a pass; what does not fill the last one is left out of that pass, at random.
        scope: Name within the owner.
    """

    #: Which axis of the rows is cut.
    axis: ClassVar[int] = 0

    def __init__(self, count: int = 1, scope: str = "minibatches") -> None:
        super().__init__(scope)
        self.count = count

    @staticmethod
    def pieces(rollout_steps: int, num_envs: int) -> int:
        """What is cut, of a rollout: its steps."""
        return rollout_steps * num_envs

    @classmethod
    def default_count(cls, rollout_steps: int, num_envs: int) -> int:
        """A divisor of what is cut: minibatches of about 64 rows."""
        return _largest_divisor(cls.pieces(rollout_steps, num_envs), rollout_steps * num_envs // 64)

    @staticmethod
    def rollout_space(step: Dict, recurrent_space: Space, steps: int | bool, trajectories: int | bool) -> Space:
        """Space of a rollout (T, B, ...), of the space of one step."""
        return step.with_batch_rank(trajectories).with_time_rank(steps)

    @classmethod
    def space(
        cls, row: Dict, recurrent_space: Space, steps: int | bool = True, trajectories: int | bool = True
    ) -> Space:
        """Space of what is learned from, (N, ...), of the space of one step; N is T*B where both are given."""
        known = steps is not True and trajectories is not True
        return row.with_batch_rank(steps * trajectories if known else True)

    def arranged(self, columns: Any, batch: Any) -> Any:
        """What is learned from: rows (T*B, ...) of columns (T, B, ...)."""
        return self._fold(columns)

    @graph_fn(split=True, differentiable=False)
    def _fold(self, leaf: Any) -> Any:
        return ops.fold_ranks(leaf, 2)

    @graph_fn(spaces="_shuffled_space")
    def shuffled(self, column: Any) -> Any:
        """Random indices (M, size) of what is cut for the M minibatches of a pass, by any column of the rows."""
        number = column.shape[self.axis]
        size = number // self.count
        return ops.reshape(ops.random.permutation(number)[: self.count * size], (self.count, size))

    def _shuffled_space(self, column: Any) -> Any:
        return IntBox(shape=(self.count, column.concrete_shape({})[self.axis] // self.count))

    @graph_fn(differentiable=False)
    def column_of_pass(self, column: Any, indices: Any) -> Any:
        """A column of the rows by minibatches, (M, ...), of indices (M, size)."""
        return ops.take(column, indices, axis=0)

    def take(self, rows: Any, indices: Any) -> Any:
        """The minibatch of some indices."""
        return graph.batch_rank(self._take_rows(rows, indices))

    @graph_fn(flatten=True, differentiable=False)
    def _take_rows(self, rows: Any, indices: Any) -> Any:
        chosen = next(iter(indices.values()))
        return {key: ops.take(leaf, chosen, axis=0) for key, leaf in rows.items()}


class SequenceMinibatches(RowMinibatches):
    """Minibatches of whole sequences: the columns (T, B) of some environments.

    Networks with a memory run through them from the state that each environment had when the rollout began
    (`initial_state`), with resets where episodes start (`episode_start`). So at the first minibatch of an update all
    states, and with them all probabilities, are those of acting. Gradients reach back to the beginning of the rollout.

    Two arrays of flags, which must not be confused: `episode_start` resets the state, after terminated and truncated
    steps alike; `terminated` alone says which steps have no next value.

    Args:
        count: Minibatches in a pass; divides the number of environments.
        scope: Name within the owner.
    """

    axis = 1

    @staticmethod
    def pieces(rollout_steps: int, num_envs: int) -> int:
        """What is cut, of a rollout: its environments."""
        return num_envs

    @classmethod
    def default_count(cls, rollout_steps: int, num_envs: int) -> int:
        """A divisor of what is cut, up to 4."""
        return _largest_divisor(num_envs, 4)

    @staticmethod
    def rollout_space(step: Dict, recurrent_space: Space, steps: int | bool, trajectories: int | bool) -> Space:
        """Space of a rollout (T, B, ...) with `episode_start`, and `initial_state` before the first step, (B, ...)."""
        columns = Dict({**step, "episode_start": BoolBox()}).with_batch_rank(trajectories).with_time_rank(steps)
        return Dict({**columns, "initial_state": recurrent_space.with_batch_rank(trajectories)})

    @classmethod
    def space(
        cls, row: Dict, recurrent_space: Space, steps: int | bool = True, trajectories: int | bool = True
    ) -> Space:
        """Space of what is learned from, (T, B, ...), and `initial_state` (B, ...)."""
        return cls.rollout_space(row, recurrent_space, steps, trajectories)

    def arranged(self, columns: Any, batch: Any) -> Any:
        """What is learned from: the columns, with what the memory starts from."""
        constants = {name: graph.stop_gradient(columns[name]) for name in ("values",) if name in columns}
        return {
            **columns,
            **constants,
            "episode_start": batch["episode_start"],
            "initial_state": batch["initial_state"],
        }

    @graph_fn(differentiable=False)
    def column_of_pass(self, column: Any, indices: Any) -> Any:
        """A column (T, B) of the rows by minibatches, (M, T, size), of indices (M, size)."""
        return ops.permute_dims(ops.take(column, indices, axis=1), (1, 0, 2))

    def take(self, rows: Any, indices: Any) -> Any:
        """The columns of some environments, each with its initial state."""
        sequences = {name: value for name, value in rows.items() if name != "initial_state"}
        chosen = {
            **graph.time_rank(self._take_columns(sequences, indices)),
            "initial_state": graph.batch_rank(self._take_rows(rows["initial_state"], indices)),
        }
        return graph.batch_rank(chosen)

    @graph_fn(flatten=True, differentiable=False)
    def _take_columns(self, rows: Any, indices: Any) -> Any:
        chosen = next(iter(indices.values()))
        return {key: ops.take(leaf, chosen, axis=1) for key, leaf in rows.items()}


def _largest_divisor(number: int, at_most: int) -> int:
    return next(divisor for divisor in range(max(at_most, 1), 0, -1) if number % divisor == 0)

"""GridWorld in ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.envs import gridworld
from rlweave.envs.in_graph.environment import Array, GraphEnvironment, State
from rlweave.graph import register
from rlweave.spaces import FloatBox, IntBox


@register("grid_world")
class GridWorld(GraphEnvironment):
    """`rlweave.envs.GridWorld` as a component: its moves, rewards and ends are tables over cells.

    Args:
        num_envs: See `GraphEnvironment`.
        world: The name of a map ("2x2", "4x4", "chain"), or its rows; see `rlweave.envs.GridWorld`.
        one_hot: Whether an observation is a vector with a one at the cell, in place of the cell's index.
        max_episode_steps: See `GraphEnvironment`.
        scope: Name within the owner.

    Raises:
        EnvError: See `rlweave.envs.GridWorld`.
    """

    def __init__(
        self,
        num_envs: int,
        world: str | Sequence[str] = "4x4",
        one_hot: bool = False,
        max_episode_steps: int | None = None,
        scope: str = "environment",
    ) -> None:
        super().__init__(num_envs, max_episode_steps, scope)
        env = gridworld.GridWorld(world)
        cells = env.num_rows * env.num_columns
        self.cells, self.one_hot = cells, one_hot
        self.start = int(env.reset()[0])
        moves, rewards, ends = np.zeros((cells, 4), np.int32), np.zeros((cells, 4), np.float32), np.zeros(cells, bool)
        for cell in range(cells):
            for action in range(4):
                env.reset(options={"index": cell})
                after, reward, terminated, _, _ = env.step(action)
                moves[cell, action], rewards[cell, action] = after, reward
                ends[after] |= terminated
        #: By cell and action: the cell it leads to, and the reward; by cell: whether the episode ends there.
        self.moves, self.rewards, self.ends = moves, rewards, ends
        self.observation_space = FloatBox(0.0, 1.0, shape=(cells,)) if one_hot else IntBox(cells)
        self.action_space = IntBox(4)

    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        return {"cell": ((), "int32", self.start)}

    def initial(self) -> State:
        return {"cell": ops.full((self.num_envs,), self.start, dtype="int32")}

    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        entry = state["cell"] * 4 + actions
        cell = ops.take(ops.reshape(ops.asarray(self.moves), (-1,)), entry)
        rewards = ops.take(ops.reshape(ops.asarray(self.rewards), (-1,)), entry)
        return {"cell": cell}, rewards, ops.take(ops.asarray(self.ends), cell)

    def observe(self, state: State) -> Any:
        return ops.one_hot(state["cell"], self.cells) if self.one_hot else state["cell"]

"""Catch in ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.envs.in_graph.environment import Array, GraphEnvironment, State
from rlweave.graph import register
from rlweave.spaces import IntBox


@register("catch")
class Catch(GraphEnvironment):
    """`rlweave.envs.Catch` as a component: a ball falls a row per step, the paddle has to be below it at the end.

    Args:
        num_envs: See `GraphEnvironment`.
        rows: Height in pixels.
        columns: Width in pixels.
        scope: Name within the owner.
    """

    def __init__(self, num_envs: int, rows: int = 8, columns: int = 8, scope: str = "environment") -> None:
        super().__init__(num_envs, None, scope)
        self.rows, self.columns = rows, columns
        self.observation_space = IntBox(0, 256, shape=(rows, columns, 1), dtype="uint8", layout="channels_last")
        self.action_space = IntBox(3)

    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        columns = self.columns

        def start(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
            return rng.integers(columns, size=shape)

        return {
            "ball_row": ((), "int32", 0),
            "ball_column": ((), "int32", start),
            "paddle": ((), "int32", self.columns // 2),
        }

    def initial(self) -> State:
        n = self.num_envs
        return {
            "ball_row": ops.zeros((n,), dtype="int32"),
            "ball_column": ops.random.randint((n,), 0, self.columns),
            "paddle": ops.full((n,), self.columns // 2, dtype="int32"),
        }

    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        paddle = ops.clip(state["paddle"] + actions - 1, 0, self.columns - 1)
        row, column = state["ball_row"] + 1, state["ball_column"]
        terminated = ops.equal(row, self.rows - 1)
        rewards = ops.where(terminated, ops.where(ops.equal(column, paddle), 1.0, -1.0), 0.0)
        return {"ball_row": row, "ball_column": column, "paddle": paddle}, rewards, terminated

    def observe(self, state: State) -> Any:
        columns = ops.one_hot(state["ball_column"], self.columns)[:, None, :]
        ball = ops.one_hot(state["ball_row"], self.rows)[:, :, None] * columns
        bottom = ops.one_hot(ops.full((1,), self.rows - 1, dtype="int32"), self.rows)[:, :, None]
        image = ops.maximum(ball, bottom * ops.one_hot(state["paddle"], self.columns)[:, None, :])
        return ops.astype(image * 255.0, "uint8")[..., None]

"""Pendulum in ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.envs.in_graph.environment import Array, GraphEnvironment, State
from rlweave.graph import register
from rlweave.spaces import FloatBox

GRAVITY, MASS, LENGTH, SECONDS = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE = 8.0, 2.0
_START_ANGLE, _START_SPEED = math.pi, 1.0


def _start(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-1.0, 1.0, shape) * np.array([_START_ANGLE, _START_SPEED])


@register("pendulum")
class Pendulum(GraphEnvironment):
    """Gymnasium's Pendulum-v1: swing a pendulum up with too little torque, and hold it there.

    Observations are (cos, sin, angular velocity) of the angle from the top; actions (1,) torques, clipped to +-2; the
    reward is -(angle^2 + 0.1 velocity^2 + 0.001 torque^2). It never terminates.

    Args:
        num_envs: See `GraphEnvironment`.
        max_episode_steps: See `GraphEnvironment`; 200 makes it Pendulum-v1.
        scope: Name within the owner.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = 200, scope: str = "environment") -> None:
        super().__init__(num_envs, max_episode_steps, scope)
        high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
        self.observation_space = FloatBox(low=-high, high=high)
        self.action_space = FloatBox(low=-MAX_TORQUE, high=MAX_TORQUE, shape=(1,))

    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        return {"physics": ((2,), "float32", _start)}

    def initial(self) -> State:
        unit = ops.random.uniform((self.num_envs, 2), -1.0, 1.0)
        return {"physics": ops.stack([unit[:, 0] * _START_ANGLE, unit[:, 1] * _START_SPEED], axis=-1)}

    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        angle, speed = state["physics"][:, 0], state["physics"][:, 1]
        torque = ops.clip(actions[:, 0], -MAX_TORQUE, MAX_TORQUE)
        from_top = ops.remainder(angle + math.pi, 2 * math.pi) - math.pi
        costs = from_top * from_top + 0.1 * speed * speed + 0.001 * torque * torque
        pull = 3 * GRAVITY / (2 * LENGTH) * ops.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        speed = ops.clip(speed + SECONDS * pull, -MAX_SPEED, MAX_SPEED)
        moved = ops.stack([angle + SECONDS * speed, speed], axis=-1)
        return {"physics": moved}, -costs, ops.zeros((self.num_envs,), dtype="bool")

    def observe(self, state: State) -> Any:
        angle, speed = state["physics"][:, 0], state["physics"][:, 1]
        return ops.stack([ops.cos(angle), ops.sin(angle), speed], axis=-1)

"""CartPole in ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.envs.in_graph.environment import Array, GraphEnvironment, State
from rlweave.graph import register
from rlweave.spaces import FloatBox, IntBox

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
FORCE, SECONDS = 10.0, 0.02
POSITION_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360
_START = 0.05


def _uniform_start(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-_START, _START, shape)


@register("cart_pole")
class CartPole(GraphEnvironment):
    """Gymnasium's CartPole-v1 (Barto, Sutton & Anderson 1983): push a cart left or right so that its pole stays up.

    Observations are (position, velocity, angle, angular velocity) in metres, radians and seconds; actions 0 left and
    1 right; each step is worth 1. In float32, where Gymnasium computes in float64.

    Args:
        num_envs: See `GraphEnvironment`.
        max_episode_steps: See `GraphEnvironment`; 500 makes it CartPole-v1, 200 CartPole-v0.
        scope: Name within the owner.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = 500, scope: str = "environment") -> None:
        super().__init__(num_envs, max_episode_steps, scope)
        high = np.array([2 * POSITION_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], np.float32)
        self.observation_space = FloatBox(low=-high, high=high)
        self.action_space = IntBox(2)

    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        return {"physics": ((4,), "float32", _uniform_start)}

    def initial(self) -> State:
        return {"physics": ops.random.uniform((self.num_envs, 4), -_START, _START)}

    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        position, velocity, angle, spin = (state["physics"][:, i] for i in range(4))
        force = ops.where(ops.equal(actions, 1), FORCE, -FORCE)
        cos, sin = ops.cos(angle), ops.sin(angle)
        mass = CART_MASS + POLE_MASS
        push = (force + POLE_MASS * HALF_LENGTH * spin * spin * sin) / mass
        spin_rate = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos * cos / mass))
        acceleration = push - POLE_MASS * HALF_LENGTH * spin_rate * cos / mass
        moved = [
            position + SECONDS * velocity,
            velocity + SECONDS * acceleration,
            angle + SECONDS * spin,
            spin + SECONDS * spin_rate,
        ]
        terminated = ops.logical_or(ops.abs(moved[0]) > POSITION_LIMIT, ops.abs(moved[2]) > ANGLE_LIMIT)
        return {"physics": ops.stack(moved, axis=-1)}, ops.ones((self.num_envs,)), terminated

    def observe(self, state: State) -> Any:
        return state["physics"]

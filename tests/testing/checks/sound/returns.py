"""Sound returns: they look ahead, and stop where an episode does."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing.descriptors import Descriptor

STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)
FLAGS = BoolBox(add_batch_rank=True, add_time_rank=True)


class LambdaReturns(Component):
    """TD(lambda): `G_t = r_t + g ((1 - l) V(s_{t+1}) + l G_{t+1})`; with V alone where an episode was cut."""

    def __init__(self, discount: float = 0.9, lambda_: float = 0.7) -> None:
        super().__init__("lambda-returns")
        self.discount, self.lambda_ = discount, lambda_

    @graph_fn(differentiable=False, looks_ahead=True)
    def estimate(self, rewards: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        bootstrap = ops.where(terminated, 0.0, next_values)
        ended = ops.logical_or(terminated, truncated)

        def step(following: Any, at: Any) -> Any:
            reward, value, end = at
            mixed = (1.0 - self.lambda_) * value + self.lambda_ * following
            total = reward + self.discount * ops.where(end, value, mixed)
            return total, total

        _, returns = ops.scan(step, bootstrap[-1], (rewards, bootstrap, ended), reverse=True)
        return returns


class TwoStepReturns(Component):
    """`r_t + g r_{t+1} + g^2 V(s_{t+2})`, or shorter, where the episode or the rows end after step t."""

    def __init__(self, discount: float = 0.9) -> None:
        super().__init__("two-step-returns")
        self.discount = discount

    @graph_fn(differentiable=False, looks_ahead=True)
    def estimate(self, rewards: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        one_step = rewards + self.discount * ops.where(terminated, 0.0, next_values)
        ended = ops.logical_or(terminated, truncated)
        two_steps = rewards[:-1] + self.discount * one_step[1:]
        return ops.concat([ops.where(ended[:-1], one_step[:-1], two_steps), one_step[-1:]], axis=0)


_INPUTS = {"rewards": STEPS, "next_values": STEPS, "terminated": FLAGS, "truncated": FLAGS}

RETURNS = (
    Descriptor("lambda-returns", LambdaReturns, LambdaReturns, _INPUTS, gradients=()),
    Descriptor("two-step-returns", TwoStepReturns, TwoStepReturns, _INPUTS, gradients=()),
)

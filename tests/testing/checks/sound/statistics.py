"""Sound components with something to remember."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing.descriptors import Descriptor

FEATURES = FloatBox(shape=(4,), add_batch_rank=True)


class RunningScale(Component):
    """Observations by the mean and deviation of all that `update` has seen; `call` leaves them as they are."""

    def __init__(self) -> None:
        super().__init__("running-scale")

    def create_variables(self, observations: Any) -> None:
        self.count = self.variable("count", (), 0.0, trainable=False)
        self.mean = self.variable("mean", observations.shape, 0.0, trainable=False)
        self.squares = self.variable("squares", observations.shape, 0.0, trainable=False)

    @graph_fn
    def call(self, observations: Any) -> Any:
        variance = self.squares.value / ops.maximum(self.count.value, 1.0)
        known = self.count.value > 1.0
        return (observations - self.mean.value) / ops.sqrt(ops.where(known, variance, 1.0) + 1e-4)

    @graph_fn(mixes_batch=True, differentiable=False)
    def update(self, observations: Any) -> None:
        number = float(observations.shape[0])
        total = self.count.value + number
        shift = ops.mean(observations, 0) - self.mean.value
        spread = ops.sum(ops.square(observations - ops.mean(observations, 0)), 0)
        self.squares.assign(self.squares.value + spread + ops.square(shift) * (self.count.value * number / total))
        self.mean.assign(self.mean.value + shift * (number / total))
        self.count.assign(total)


class RandomNetworkDistillation(Component):
    """How badly a network predicts what a random one, which never changes, says of an observation."""

    def __init__(self) -> None:
        super().__init__("distillation")
        self.predictor = Dense(3, scope="predictor")
        self.random = Dense(3, "tanh", scope="random").copy(scope="random", trainable=False)

    @api
    def bonus(self, observations: Any) -> Any:
        return self._distances(graph.stop_gradient(self.predictor.call(observations)), self._wanted(observations))

    @api
    def loss(self, observations: Any) -> Any:
        return self._mean(self._distances(self.predictor.call(observations), self._wanted(observations)))

    def _wanted(self, observations: Any) -> Any:
        return graph.stop_gradient(self.random.call(observations))

    @graph_fn
    def _distances(self, predicted: Any, wanted: Any) -> Any:
        return ops.mean(ops.square(predicted - wanted), -1)

    @graph_fn
    def _mean(self, distances: Any) -> Any:
        return ops.mean(distances)


class CountBonus(Component):
    """1 / sqrt(n + 1) for a state that was visited n times."""

    def __init__(self, states: int = 6) -> None:
        super().__init__("count-bonus")
        self.states = states

    def create_variables(self) -> None:
        self.visits = self.variable("visits", (self.states,), 0, trainable=False, dtype="int32")

    @graph_fn
    def bonus(self, states: Any) -> Any:
        return 1.0 / ops.sqrt(ops.astype(ops.take(self.visits.value, states), "float32") + 1.0)

    @graph_fn(mixes_batch=True, differentiable=False)
    def visit(self, states: Any) -> None:
        self.visits.assign(ops.add_at(self.visits.value, states, ops.ones_like(states)))


class Curriculum(Component):
    """A level of difficulty that rises with every ten successes."""

    def __init__(self, step: int = 10, levels: int = 4) -> None:
        super().__init__("curriculum")
        self.step, self.levels = step, levels

    def create_variables(self) -> None:
        self.successes = self.variable("successes", (), 0, trainable=False, dtype="int32")

    @graph_fn
    def level(self) -> Any:
        return ops.minimum(ops.floor_divide(self.successes.value, self.step), self.levels - 1)

    @graph_fn(mixes_batch=True, differentiable=False)
    def record(self, success: Any) -> None:
        self.successes.assign(self.successes.value + ops.sum(ops.astype(success, "int32")))


STATISTICS = (
    Descriptor(
        "running-scale", RunningScale, RunningScale, {"observations": FEATURES}, calls=("call", "update", "call")
    ),
    Descriptor("distillation", RandomNetworkDistillation, RandomNetworkDistillation, {"observations": FEATURES}),
    Descriptor(
        "count-bonus",
        CountBonus,
        CountBonus,
        {"states": IntBox(6, add_batch_rank=True)},
        calls=("bonus", "visit", "bonus"),
    ),
    Descriptor(
        "curriculum",
        Curriculum,
        Curriculum,
        {"success": BoolBox(add_batch_rank=True)},
        calls=("level", "record", "level"),
    ),
)

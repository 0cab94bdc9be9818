"""Descriptors of memories, optimizers, and environments in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave import components as c
from rlweave import ops
from rlweave.components.memories.graph_n_step import NStepWindow
from rlweave.components.ranks import Ranks, Share
from rlweave.envs import in_graph, make_env
from rlweave.flow.collective import local_collectives
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing.component_descriptors.common import (
    FEATURES,
    add,
    bools,
    floats,
    ints,
)


def _existing_records(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A round inserts as many records as it updates, so lower indices are taken."""
    if method == "update_priorities":
        arguments["indices"] = arguments["indices"] % len(arguments["indices"])
    return arguments


_MEMORIES: dict[str, type[Component]] = {
    "replay": c.ReplayMemory,
    "prioritized-replay": c.PrioritizedReplay,
    "graph-replay": c.GraphReplay,
    "graph-prioritized-replay": c.GraphPrioritizedReplay,
}
for _name, _memory in _MEMORIES.items():
    add(
        _name,
        _memory,
        lambda memory=_memory: memory(capacity=8),  # type: ignore[misc]
        {
            "records": Dict(observations=floats(2), actions=ints(3), terminated=bools()),
            "indices": ints(8),
            "td_errors": floats(),
        },
        calls=("insert", "size", "sample", "update_priorities", "sample"),
        static={"sample": {"batch_size": 5}},
        adapt=_existing_records,
        unused={} if "prioritized" in _name else {"update_priorities": ("indices", "td_errors")},
        gradients=(),
    )

_RECORDS = Dict(observations=floats(2), actions=ints(3), terminated=bools())
add(
    "fifo-queue",
    c.FIFOQueue,
    lambda: c.FIFOQueue(5),
    {"records": _RECORDS},
    calls=("put", "size", "get", "put", "get"),
    static={"get": {"count": 3}},
    gradients=(),
)
add(
    "ring-buffer",
    c.RingBuffer,
    lambda: c.RingBuffer(5),
    {"records": _RECORDS},
    calls=("insert", "size", "latest", "insert", "latest"),
    static={"latest": {"count": 3}},
    gradients=(),
)

add(
    "n-step-window",
    NStepWindow,
    lambda: NStepWindow(2, 0.9, num_envs=3),
    {
        "steps": Dict(
            observations=FloatBox(shape=(2,)),
            actions=IntBox(3),
            rewards=FloatBox(),
            terminated=BoolBox(),
            truncated=BoolBox(),
            next_observations=FloatBox(shape=(2,)),
        ).with_batch_rank(3)
    },
    calls=("push", "push", "push"),
    gradients=(),
    batch_sizes=(3,),
)


class OptimizedLayer(Component):
    """A layer and the optimizer that trains it."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__("learner")
        self.layer = c.Dense(2, "tanh")
        self.optimizer = optimizer

    @api
    def call(self, inputs: Any) -> Any:
        """The layer."""
        return self.layer.call(inputs)

    @api
    def apply(self, gradients: Any) -> Any:
        """Gradients from outside: kernel and bias."""
        self.optimizer.apply([gradients["kernel"], gradients["bias"]], self.layer.variables())

    @api
    def step(self, inputs: Any) -> Any:
        """A step down the gradient of a loss, which it returns."""
        loss = self._loss(self.layer.call(inputs))
        self.optimizer.step(loss, self.layer.variables())
        return loss

    @graph_fn
    def _loss(self, outputs: Any) -> Any:
        return ops.mean(ops.square(outputs - 0.5))


_SCHEDULE = {"type": "linear", "start": 0.1, "end": 0.01, "steps": 4}
_OPTIMIZERS: dict[str, tuple[type[Component], Callable[[], Component]]] = {
    "sgd": (c.SGD, lambda: c.SGD(0.1)),
    "sgd-nesterov": (c.SGD, lambda: c.SGD(0.1, momentum=0.9, nesterov=True)),
    "adam": (c.Adam, lambda: c.Adam(_SCHEDULE, max_grad_norm=0.5)),
    "adamw": (c.AdamW, lambda: c.AdamW(0.1)),
    "rmsprop": (c.RMSProp, lambda: c.RMSProp(0.1)),
}
for _name, (_optimizer, _make) in _OPTIMIZERS.items():
    add(
        _name,
        _optimizer,
        lambda make=_make: OptimizedLayer(make()),  # type: ignore[misc]
        {"inputs": FEATURES, "gradients": Dict(kernel=FloatBox(shape=(4, 2)), bias=FloatBox(shape=(2,)))},
        calls=("call", "apply", "call", "apply"),
        gradients=(),
    )
    # NumPy has no gradients, so whole steps are compared between the backends that have.
    add(
        f"{_name}-step",
        _optimizer,
        lambda make=_make: OptimizedLayer(make()),  # type: ignore[misc]
        {"inputs": FEATURES},
        calls=("step", "step"),
        backends=("torch", "jax", "tensorflow"),
        reference="torch",
        gradients=(),
    )


_ENVIRONMENTS: dict[str, Callable[[], in_graph.GraphEnvironment]] = {
    "cart_pole": lambda: in_graph.CartPole(2, max_episode_steps=3),
    "pendulum": lambda: in_graph.Pendulum(2, max_episode_steps=3),
    "catch": lambda: in_graph.Catch(2, rows=3, columns=4),
    "cue_recall": lambda: in_graph.CueRecall(2, length=2, max_length=3),
    "grid_world": lambda: in_graph.GridWorld(2, "2x2", one_hot=True, max_episode_steps=3),
}
for _name, _make_environment in _ENVIRONMENTS.items():
    add(
        _name,
        type(_make_environment()),
        _make_environment,
        {"actions": _make_environment().action_space.with_batch_rank(2)},
        calls=("observations", "step", "step", "step", "step", "reset", "step"),
        gradients=(),
        batch_sizes=(2,),
    )


def _external() -> in_graph.ExternalEnvironment:
    return in_graph.ExternalEnvironment(make_env("rlweave/GridWorld-v0", 2, seed=0))


# what it holds is outside of the graph's state: only what follows a reset can be compared, where all begins alike
add(
    "external",
    in_graph.ExternalEnvironment,
    _external,
    {"actions": IntBox(4).with_batch_rank(2)},
    calls=("reset", "step", "observations", "step"),
    gradients=(),
    batch_sizes=(2,),
)

# a training of one rank: what is of all ranks is its own
add(
    "ranks",
    Ranks,
    lambda: Ranks(Share(local_collectives(1)[0])),
    {
        "values": Dict(kernel=FloatBox(shape=(3, 2)), bias=FloatBox(shape=(2,))),
        "number": FloatBox(1, 9),
        "center": FloatBox(-2, 2, shape=(2,)),
        "spread": FloatBox(0, 4, shape=(2,)),
    },
    gradients=(),
)

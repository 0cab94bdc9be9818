"""A shard of the parameters: some variables and their optimizer, alone in a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlweave import graph
from rlweave.agents.agent import Agent
from rlweave.components.optimizers import Optimizer
from rlweave.flow import Gradients
from rlweave.graph import Component, GraphExecutor, api, build


class ShardGraph(Component):
    """Variables by the paths that they have in the agent, and an optimizer that moves them.

    Args:
        optimizer: The optimizer.
        values: Initial values by path.
    """

    def __init__(self, optimizer: Optimizer, values: Mapping[str, np.ndarray]) -> None:
        super().__init__(_root_of(values))
        self.optimizer = optimizer
        self._values = dict(values)

    def create_variables(self) -> None:
        for path, value in self._values.items():
            self.variable(path.partition("/")[2], value.shape, value, dtype=value.dtype.name)

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with gradients by path; with all of them the same program as the agent's, to the bit."""
        graph.metrics(self.optimizer.apply(gradients, self.variables()))


class ParameterShard:
    """Holds a part of the parameters and of the optimizer's state: a learner whose batches are gradients.

    Args:
        executor: Of a `ShardGraph`.
        paths: Of its variables.
    """

    def __init__(self, executor: GraphExecutor, paths: Sequence[str]) -> None:
        self.executor, self.paths = executor, list(paths)
        self.env_steps = 0

    def process(self) -> int:
        """Number of its process."""
        return os.getpid()

    def update(self, gradients: Gradients) -> dict[str, Any]:
        """One optimizer step with gradients of its variables; the metrics that came along."""
        self.env_steps += gradients.num_steps
        self.executor.apply(gradients.values)
        return gradients.metrics

    def get_weights(self) -> dict[str, Any]:
        """Its variables, and the environment steps so far, as `EnvWorker.set_weights` takes them."""
        weights = {path: self.executor.store.to_numpy(path) for path in self.paths}
        return {"weights": weights, "env_steps": self.env_steps}

    def state_dict(self) -> dict[str, Any]:
        """Variables and optimizer state by path, and its counter."""
        return {"variables": self.executor.get_weights(), "counters": {"env_steps": self.env_steps}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.executor.set_weights(state["variables"])
        self.env_steps = int(state["counters"]["env_steps"])


class ParameterShardFactory:
    """Makes a shard in its process.

    Args:
        optimizer: The optimizer, not built.
        values: Initial values of its variables, by path.
        backend: Where it computes.
        device: Device of its graph; None for the default.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        values: Mapping[str, np.ndarray],
        backend: str,
        device: str | None = None,
    ) -> None:
        self.optimizer, self.values = optimizer, dict(values)
        self.backend, self.device = backend, device

    def __call__(self) -> ParameterShard:
        """The shard."""
        root = ShardGraph(self.optimizer.copy(self.optimizer.scope), self.values)
        spaces = {"gradients": lambda own: own.variables()}
        executor = build(root, spaces, backend=self.backend, device=self.device)
        return ParameterShard(executor, list(self.values))

    def part_of(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The shard's part of the state of a whole agent, as `state_of` gives it."""
        slots = f"{_root_of(self.values)}/optimizer/"

        def is_own(path: str) -> bool:
            name = path.removeprefix(slots)
            return path in self.values or (path != name and (name == "steps" or name.rpartition("/")[0] in self.values))

        own = {path: value for path, value in state["variables"].items() if is_own(path)}
        return {"variables": own, "counters": state["counters"]}

    @property
    def nbytes(self) -> int:
        """Bytes of its variables, without the optimizer's state."""
        return sum(value.nbytes for value in self.values.values())


def shard_factories(agent: Agent, shards: int) -> list[ParameterShardFactory]:
    """Factories of the shards of a built agent's trained variables, with the values that they have now.

    Several shards have optimizers that do not clip: the norm is that of all gradients together, see `InParts`.

    Args:
        agent: The agent; its root has one optimizer.
        shards: How many; at most as many as there are variables.
    """
    root: Any = agent.make_root()
    optimizer: Optimizer = root.optimizer.copy(root.optimizer.scope)
    if shards > 1:
        optimizer.max_grad_norm = None
    values = trained_variables(agent)
    parts = partition({path: value.nbytes for path, value in values.items()}, shards)
    return [
        ParameterShardFactory(optimizer, {path: values[path] for path in paths}, agent.backend, agent.config.device)
        for paths in parts
    ]


def trained_variables(agent: Agent) -> dict[str, np.ndarray]:
    """Copies of the variables that a built agent's `apply` moves, by path, in the order of its optimizer."""
    (apply,) = [own for own in agent.executor.graphs.values() if own.name == "apply"]
    return {path: agent.executor.store.to_numpy(path) for path in apply.inputs["gradients"]}


def partition(sizes: Mapping[str, int], shards: int) -> list[list[str]]:
    """Divides variables among shards: the largest first, each to the shard that has the fewest bytes.

    Args:
        sizes: Bytes by path.
        shards: How many.

    Returns:
        The paths of each shard, in the order of `sizes`.

    >>> partition({"a": 4, "b": 100, "c": 60, "d": 40}, 2)
    [['a', 'b'], ['c', 'd']]
    """
    loads, chosen = [0] * shards, {}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        number = loads.index(min(loads))
        chosen[path] = number
        loads[number] += sizes[path]
    return [[path for path in sizes if chosen[path] == number] for number in range(shards)]


def whole_state(agent: Agent, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the shards have learned, as the state of the whole agent.

    The count of optimizer steps is that of the shard which has made most: one that was restarted has lost some.
    """
    variables = agent.state_dict()
    for state in states:
        for path, value in state["variables"].items():
            is_count = path.endswith("/optimizer/steps")
            variables[path] = np.maximum(variables[path], value) if is_count else value
    return {"variables": variables, "counters": {"env_steps": max(own["counters"]["env_steps"] for own in states)}}


def _root_of(values: Mapping[str, Any]) -> str:
    return next(iter(values)).partition("/")[0]

"""DQN whose environments and memory are in the graph."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph, ops
from rlweave.agents.dqn import DQN, DQNGraph
from rlweave.agents.fused_replay import FusedReplayAgent, FusedReplayGraph
from rlweave.components.schedules import Schedule, make_schedule
from rlweave.graph import graph_fn

_LAST = 2**31 - 1


class FusedDQNGraph(FusedReplayGraph, DQNGraph):
    """The component graph of DQN with its environments.

    Args:
        epsilon: Share of random actions over environment steps.
        arguments: Those of `FusedReplayGraph` and `DQNGraph`.
    """

    def __init__(self, epsilon: Schedule, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.epsilon = epsilon

    def create_variables(self) -> None:
        """How many environment steps there have been, for the schedule; the count stops where int32 ends."""
        self.env_steps = self.variable("env_steps", (), 0, trainable=False, dtype="int32")

    def explore(self, observations: Any) -> Any:
        return self.act(observations, graph.batch_rank(self._epsilon()))[0]

    @graph_fn(differentiable=False)
    def _epsilon(self) -> Any:
        """The present share of random actions, (N,); counts the steps."""
        steps, more = self.env_steps.value, self.environment.num_envs
        self.env_steps.assign(ops.where(steps > _LAST - more, _LAST, steps + more))
        return ops.broadcast_to(self.epsilon.in_graph(steps, ops), (more,))


class FusedDQN(FusedReplayAgent, DQN):
    """DQN on environments that are components; see `FusedReplayAgent`."""

    graph_class: ClassVar[type[FusedDQNGraph]] = FusedDQNGraph

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {"epsilon": make_schedule(self.config.epsilon)}

    @property
    def steps_per_call(self) -> int:
        """Those between two copies to the target network."""
        return self.config.target_update_interval

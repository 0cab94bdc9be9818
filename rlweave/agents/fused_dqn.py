"""DQN whose environments and memory are in the graph."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.dqn import DQN, DQNGraph
from rlweave.agents.fused_replay import FusedReplayAgent, FusedReplayGraph
from rlweave.components.exploration import EpsilonOfSteps
from rlweave.components.schedules import Schedule, make_schedule


class FusedDQNGraph(FusedReplayGraph, DQNGraph):
    """The component graph of DQN with its environments.

    Args:
        epsilon: Share of random actions over environment steps.
        arguments: Those of `FusedReplayGraph` and `DQNGraph`.
    """

    def __init__(self, epsilon: Schedule, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.epsilon = EpsilonOfSteps(epsilon, self.environment.num_envs)

    def explore(self, observations: Any) -> Any:
        return self.act(observations, graph.batch_rank(self.epsilon.next()))[0]


class FusedDQN(FusedReplayAgent, DQN):
    """DQN on environments that are components; see `FusedReplayAgent`."""

    graph_class: ClassVar[type[FusedDQNGraph]] = FusedDQNGraph

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {"epsilon": make_schedule(self.config.epsilon)}

    @property
    def steps_per_call(self) -> int:
        """Those between two copies to the target network."""
        return self.config.target_update_interval

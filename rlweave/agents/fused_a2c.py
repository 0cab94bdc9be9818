"""A2C whose environments are in the graph: a rollout and its optimizer step are one compiled call."""

from __future__ import annotations

from typing import ClassVar

from rlweave.agents.a2c import A2C, A2CGraph
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.fused_on_policy import FusedOnPolicyAgent, FusedOnPolicyGraph


class FusedA2CGraph(FusedOnPolicyGraph, A2CGraph):
    """The component graph of A2C with its environments."""


class FusedA2C(FusedOnPolicyAgent, A2C):
    """A2C on environments that are components; see `FusedAgent`."""

    graph_class: ClassVar[type[ActorCriticGraph]] = FusedA2CGraph

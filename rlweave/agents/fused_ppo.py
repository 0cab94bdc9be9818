"""PPO whose environments are in the graph: rollout, advantages and all epochs are one compiled call."""

from __future__ import annotations

from typing import ClassVar

from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.fused_on_policy import FusedOnPolicyAgent, FusedOnPolicyGraph
from rlweave.agents.ppo import PPO, PPOGraph


class FusedPPOGraph(FusedOnPolicyGraph, PPOGraph):
    """The component graph of PPO with its environments."""


class FusedPPO(FusedOnPolicyAgent, PPO):
    """PPO on environments that are components; see `FusedAgent`."""

    graph_class: ClassVar[type[ActorCriticGraph]] = FusedPPOGraph

"""Memories: replay on the host, n-step windows and rollouts."""

from rlweave.components.memories.n_step import NStepAccumulator
from rlweave.components.memories.prioritized import PrioritizedReplay
from rlweave.components.memories.replay import ReplayMemory
from rlweave.components.memories.rollout import Rollout, RolloutStorage

__all__ = ["NStepAccumulator", "PrioritizedReplay", "ReplayMemory", "Rollout", "RolloutStorage"]

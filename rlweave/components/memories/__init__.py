"""Memories: replay on the host, n-step windows and rollouts."""

from rlweave.components.memories.prioritized import PrioritizedReplay
from rlweave.components.memories.replay import ReplayMemory

__all__ = ["PrioritizedReplay", "ReplayMemory"]

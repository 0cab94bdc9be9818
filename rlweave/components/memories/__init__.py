"""Memories: replay on the host or in the graph, queues, n-step windows and rollouts."""

from rlweave.components.memories.graph_replay import GraphPrioritizedReplay, GraphReplay
from rlweave.components.memories.graph_ring import FIFOQueue, RingBuffer
from rlweave.components.memories.n_step import NStepAccumulator
from rlweave.components.memories.prioritized import PrioritizedReplay
from rlweave.components.memories.replay import ReplayMemory

__all__ = [
    "FIFOQueue",
    "GraphPrioritizedReplay",
    "GraphReplay",
    "NStepAccumulator",
    "PrioritizedReplay",
    "ReplayMemory",
    "RingBuffer",
]

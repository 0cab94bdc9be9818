"""Replay memory of 10^6 transitions: add 8, draw 512 (and give 512 new priorities), through an executor on NumPy.

Peers: for even draws the bare array operations, without a component, a check or a lock; for prioritized draws a plain
binary sum tree on NumPy, one indexed step per level both ways, around the same bare arrays.
"""

from __future__ import annotations

import itertools

from alternating import compare, one_thread, report

one_thread()

import numpy as np  # noqa: E402

from rlweave.components import PrioritizedReplay, ReplayMemory  # noqa: E402
from rlweave.graph import build  # noqa: E402
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox  # noqa: E402

CAPACITY, ADD, BATCH, ALPHA, BETA = 10**6, 8, 512, 0.6, 0.4
SPACE = Dict(
    observations=FloatBox(shape=(4,)),
    actions=IntBox(2),
    rewards=FloatBox(),
    terminated=BoolBox(),
    next_observations=FloatBox(shape=(4,)),
    add_batch_rank=True,
)
ERRORS = np.abs(np.random.default_rng(0).normal(size=(64, BATCH))).astype(np.float32)


class BareRing:
    """What is left of a replay memory when everything but the array operations is taken away."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        flat = SPACE.strip_ranks().flatten()
        self.arrays = {path: np.ones((CAPACITY, *leaf.shape), leaf.dtype) for path, leaf in flat.items()}
        self.position = 0

    def insert(self, records):
        slots = slice(self.position, self.position + ADD)
        for name, array in self.arrays.items():
            array[slots] = records[name]
        self.position = (self.position + ADD) % CAPACITY

    def gather(self, indices):
        return {name: array.take(indices, axis=0) for name, array in self.arrays.items()}


class PlainTree(BareRing):
    """A textbook sum tree on whole arrays of indices."""

    def __init__(self):
        super().__init__()
        self.leaves = 1 << (CAPACITY - 1).bit_length()
        self.nodes = np.zeros(2 * self.leaves)
        self.set(np.arange(CAPACITY), np.ones(CAPACITY))

    def set(self, indices, priorities):
        node = indices + self.leaves
        self.nodes[node] = priorities
        while node[0] > 1:
            node = np.unique(node >> 1)
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def insert(self, records):
        slots = np.arange(self.position, self.position + ADD)
        super().insert(records)
        self.set(slots, 1.0)

    def sample(self):
        targets = (np.arange(BATCH) + self.rng.random(BATCH)) * (self.nodes[1] / BATCH)
        node = np.ones(BATCH, np.int64)
        while node[0] < self.leaves:
            left = self.nodes[2 * node]
            right = targets >= left
            targets = np.where(right, targets - left, targets)
            node = 2 * node + right
        priorities = self.nodes[node]
        weights = (priorities / self.nodes[1] * CAPACITY) ** -BETA
        indices = node - self.leaves
        return self.gather(indices), indices, (weights / weights.max()).astype(np.float32)

    def update(self, indices, errors):
        self.set(indices, (errors.astype(np.float64) + 1e-6) ** ALPHA)


def filled(memory):
    """An executor whose memory is full."""
    inputs = {
        "records": SPACE,
        "indices": IntBox(CAPACITY, add_batch_rank=True),
        "td_errors": FloatBox(add_batch_rank=True),
    }
    executor = build(memory, inputs, backend="numpy")
    chunk = SPACE.sample(CAPACITY // 10, rng=0)
    for _ in range(10):
        executor.insert(chunk)
    return executor


def uniform_row(records):
    """Even draws against bare arrays."""
    memory, bare = filled(ReplayMemory(CAPACITY)), BareRing()

    def ours():
        memory.insert(records)
        return memory.sample(batch_size=BATCH)

    def peer():
        bare.insert(records)
        indices = bare.rng.integers(0, CAPACITY, BATCH)
        return bare.gather(indices), indices, np.ones(BATCH, np.float32)

    return compare("uniform: add 8, sample 512 / bare arrays", ours, peer, 0.5)


def prioritized_row(records):
    """Prioritized draws against a plain tree."""
    memory, plain = filled(PrioritizedReplay(CAPACITY, ALPHA, BETA)), PlainTree()
    errors = itertools.cycle(ERRORS)

    def ours():
        memory.insert(records)
        _, indices, _ = memory.sample(batch_size=BATCH)
        memory.update_priorities(indices, next(errors))

    def peer():
        plain.insert(records)
        _, indices, _ = plain.sample()
        plain.update(indices, next(errors))

    for _ in range(3000):  # priorities spread over the tree
        ours()
        peer()
    return compare("prioritized: add 8, sample 512, update 512 / plain tree", ours, peer, 1.0)


if __name__ == "__main__":
    RECORDS = SPACE.sample(ADD, rng=1)
    report("replay_memory", [uniform_row(RECORDS), prioritized_row(RECORDS)])

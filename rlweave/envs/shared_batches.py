"""Shared memory between a vector environment and the processes of its sub-environments."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator

import numpy as np

from rlweave.envs.batching import Array, Batch, BatchCodec, TextCodec
from rlweave.tree import tree_leaves, tree_map

#: Bits of `SharedBatches.flags`.
TERMINATED, TRUNCATED = 1, 2


class SharedBatches:
    """The batches of a vector environment in one shared memory, laid out alike in each process.

    Args:
        path: The file; it must have `size_of` bytes.
        codec: Codec of the observation space.
        action_codec: Codec of the action space.
        num_envs: Number of rows.

    Attributes:
        final: Observations that actions led to; None where text is in them.
        first: Observations after a reset; None as well.
        actions: Actions in Gymnasium's form, nested (num_envs, *shape); None where text is in them.
        rewards: float64 (num_envs,).
        flags: Whether episodes ended, in bits, uint8 (num_envs,).
    """

    def __init__(self, path: str, codec: BatchCodec, action_codec: BatchCodec, num_envs: int) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.size_of(codec, action_codec, num_envs))
        self._used = 0
        batches = [tree_map(self._like, batch) for batch in _templates(codec, action_codec, num_envs)]
        self.final, self.first, self.actions, self.rewards, self.flags = batches

    @staticmethod
    def size_of(codec: BatchCodec, action_codec: BatchCodec, num_envs: int) -> int:
        """The number of bytes that all batches take."""
        batches = _templates(codec, action_codec, num_envs)
        return sum(_padded(leaf.nbytes) for batch in batches for leaf in tree_leaves(batch) if leaf is not None)

    def write_actions(self, actions: Batch) -> None:
        """Copies actions in Gymnasium's form."""
        for into, leaf in zip(tree_leaves(self.actions), tree_leaves(actions), strict=True):
            into[...] = leaf

    def _like(self, template: Array | None) -> Array | None:
        if template is None or not template.size:
            return template
        array = np.frombuffer(self._memory, template.dtype, template.size, self._used).reshape(template.shape)
        self._used += _padded(array.nbytes)
        return array


def _templates(codec: BatchCodec, action_codec: BatchCodec, num_envs: int) -> list[Batch]:
    """Arrays of the right shapes and dtypes: final, first, actions, rewards, flags."""
    observations = codec.allocate(num_envs, np.empty) if can_share(codec) else None
    actions = None
    if can_share(action_codec):
        actions = action_codec.to_vector(action_codec.allocate(num_envs), num_envs)
    return [observations, observations, actions, np.empty(num_envs, np.float64), np.empty(num_envs, np.uint8)]


def can_share(codec: BatchCodec) -> bool:
    """Whether every leaf of a space has a fixed number of bytes, unlike text."""
    return not any(isinstance(leaf, TextCodec) for leaf in codec.leaves())


@contextlib.contextmanager
def memory_file(size: int) -> Iterator[str]:
    """A new file with that many bytes, which other processes can map as long as the context lasts.

    What is mapped lives on. Where the system has files in memory without a name, there is none to leave behind, even
    when this process is killed meanwhile.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rlweave", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, size)
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="rlweave-")
    try:
        os.truncate(descriptor, size)
        yield path
    finally:
        os.close(descriptor)
        os.unlink(path)


def _padded(size: int) -> int:
    return -(-size // 64) * 64

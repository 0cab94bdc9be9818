"""Sequences of steps for recurrent networks that learn from a memory."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.errors import ConfigError
from rlweave.spaces import BoolBox, Box, Dict, FloatBox, IntBox, Space
from rlweave.tree import flatten_tree, tree_leaves, tree_map, unflatten_like

Nested = Any


def sequence_space(observation_space: Space, action_space: Space, recurrent_space: Space, length: int) -> Dict:
    """Space of one sequence of T steps as a record of a memory: time is an axis within, (T, ...).

    `observations`, `actions`, `rewards`, `terminated`, `truncated`, `next_observations` are of the steps;
    `episode_start` is True where an episode begins with the step, `mask` False where there is none (padding).
    `initial_state`, without a time axis, is the recurrent state before the first step.

    Args:
        observation_space: Of one observation.
        action_space: Of one action.
        recurrent_space: Of the recurrent state of one environment.
        length: T.
    """
    steps = Dict(
        observations=observation_space,
        actions=action_space,
        rewards=FloatBox(),
        terminated=BoolBox(),
        truncated=BoolBox(),
        next_observations=observation_space,
        episode_start=BoolBox(),
        mask=BoolBox(),
    )
    space = steps.strip_ranks().map(lambda box: _with_time_axis(box, length))
    assert isinstance(space, Dict)
    return Dict({**space, "initial_state": recurrent_space.strip_ranks()})


def _with_time_axis(box: Box, length: int) -> Box:
    shape = (length, *box.feature_shape)
    if isinstance(box, IntBox):
        low, high = (np.broadcast_to(bound, shape) for bound in (box.low, box.high))
        return IntBox(low, high, shape=shape, dtype=box.dtype)
    if isinstance(box, FloatBox):
        low, high = (np.broadcast_to(bound, shape) for bound in (box.low, box.high))
        return FloatBox(low, high, shape=shape, dtype=box.dtype)
    return BoolBox(shape=shape)


class SequenceAccumulator:
    """Turns steps of environments into overlapping sequences, on the host, before they go into a memory.

    A sequence has `burn_in` steps, and `unroll` more that are trained on. Sequences go on over the ends of episodes,
    where recurrent state starts anew (`episode_start`) and windows of returns stop (`terminated`, `truncated`): so
    all are full, however short episodes are, and without an overlap every step is trained on in exactly one of them.
    (R2D2 stops them at episode ends, and never trains on the first `burn_in` steps of an episode.) Before the first
    step of an environment stands padding, `mask` False.

    Args:
        burn_in: Steps before those trained on.
        unroll: Steps that are trained on.
        overlap: How many of these the next sequence has again.
        num_envs: Number of sub-environments B.

    Raises:
        ConfigError: The numbers do not fit together.
    """

    def __init__(self, burn_in: int, unroll: int, overlap: int, num_envs: int) -> None:
        if burn_in < 0 or unroll < 1 or not 0 <= overlap < unroll or num_envs < 1:
            raise ConfigError(
                "sequences need burn_in >= 0, unroll >= 1, 0 <= overlap < unroll and num_envs >= 1",
                received=f"burn_in={burn_in!r}, unroll={unroll!r}, overlap={overlap!r}, num_envs={num_envs!r}",
            )
        self.burn_in, self.length, self.period, self.num_envs = burn_in, burn_in + unroll, unroll - overlap, num_envs
        self.reset()

    def reset(self) -> None:
        """Drops all steps of sequences that are not complete."""
        # rows of each environment's present sequence so far; the first one begins with padding
        self._filled = np.full(self.num_envs, self.burn_in, np.int64)
        self._buffers: dict[str, np.ndarray] = {}
        self._nesting: Nested = None

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all steps of sequences that are not complete, by name."""
        buffers = {f"buffers/{path}": array.copy() for path, array in self._buffers.items()}
        return {"filled": self._filled.copy(), **buffers}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state_dict` gave an accumulator of the same sizes."""
        self.reset()
        self._filled = np.array(state["filled"])
        prefix = "buffers/"
        self._buffers = {p.removeprefix(prefix): np.array(x) for p, x in state.items() if p.startswith(prefix)}

    def add(
        self,
        observations: Nested,
        actions: Nested,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_observations: Nested,
        valid: npt.ArrayLike | None = None,
        *,
        recurrent_state: Nested,
        episode_start: npt.ArrayLike,
    ) -> dict[str, Any]:
        """Takes one step of all sub-environments; everything is copied.

        Args:
            observations: What the actions were chosen on, (B, ...) per leaf.
            actions: (B, ...) per leaf.
            rewards: (B,).
            terminated: (B,), bool.
            truncated: (B,), bool.
            next_observations: What the actions led to, (B, ...) per leaf; final observations where an episode ended.
            valid: Rows that are transitions, bool (B,); the others are left out. None: all.
            recurrent_state: Before the step, (B, ...) per leaf.
            episode_start: The step is the first of its episode, bool (B,).

        Returns:
            The N >= 0 sequences that became complete, as fresh arrays: see `sequence_space`, with a first axis N.
        """
        step = {
            "observations": observations,
            "actions": actions,
            "rewards": np.asarray(rewards, np.float32),
            "terminated": np.asarray(terminated, np.bool_),
            "truncated": np.asarray(truncated, np.bool_),
            "next_observations": next_observations,
            "episode_start": np.asarray(episode_start, np.bool_),
            "mask": np.ones(self.num_envs, np.bool_),
            "initial_state": recurrent_state,
        }
        flat = {path: np.asarray(value) for path, value in flatten_tree(step).items()}
        if self._nesting is None:
            self._nesting = tree_map(lambda leaf: None, step)
        if not self._buffers:
            self._buffers = {
                path: np.zeros((self.num_envs, self.length, *value.shape[1:]), value.dtype)
                for path, value in flat.items()
            }
        envs = np.arange(self.num_envs) if valid is None else np.flatnonzero(valid)
        rows = self._filled[envs]
        for path, buffer in self._buffers.items():
            buffer[envs, rows] = flat[path][envs]
        self._filled[envs] += 1
        return self._take(np.flatnonzero(self._filled == self.length))

    def extend(self, **columns: Nested) -> dict[str, Any]:
        """Takes T steps of all sub-environments: the arguments of `add`, (T, B, ...) each."""
        steps = range(len(tree_leaves(columns)[0]))
        found = [self.add(**tree_map(itemgetter(t), columns)) for t in steps]
        return tree_map(lambda *parts: np.concatenate(parts), *found)

    def _take(self, envs: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Complete sequences of some sub-environments; what the next ones share with them stays."""
        complete = {}
        for path, buffer in self._buffers.items():
            chosen = buffer[envs]
            complete[path] = np.array(chosen[:, 0]) if path.startswith("initial_state") else chosen
            if len(envs):
                buffer[envs, : self.length - self.period] = chosen[:, self.period :]
        self._filled[envs] -= self.period
        nested: dict[str, Any] = unflatten_like(self._nesting, complete)
        return nested

"""n-step transitions from the single steps of a vector environment (Sutton & Barto 2018, section 7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.errors import CheckpointError, ConfigError, ExecutionError
from rlweave.spaces import BoolBox, Dict, FloatBox, Space
from rlweave.tree import flatten_tree, tree_map, unflatten_like

Nested = Any
Bools = npt.NDArray[np.bool_]


class NStepAccumulator:
    """Turns one-step transitions into n-step transitions, on the host, before they go into a memory.

    A window starts at every step. It is n steps long, or ends with its episode (terminated or truncated): where an
    episode ends, all windows that are still open end there, each with the steps it has. So every step starts exactly
    one transition, no transition spans two episodes, and what is stored needs no look at its neighbours. `discounts`
    belongs to the steps really used.

    Windows stay open between calls: training that pauses and goes on from the same observation loses and invents
    nothing. Where the environments are *reset* in the middle of an episode, call `flush` before.

    Args:
        n: Longest window, 1 or more.
        discount: g.
        num_envs: Number of sub-environments B.

    Example:
        >>> windows = NStepAccumulator(n=2, discount=0.5, num_envs=1)
        >>> no = np.array([False])
        >>> windows.add(np.array([0]), np.array([7]), np.array([1.0]), no, no, np.array([1]))["rewards"]
        array([], dtype=float32)
        >>> windows.add(np.array([1]), np.array([8]), np.array([2.0]), no, no, np.array([2]))["rewards"]
        array([2.], dtype=float32)
    """

    _first: dict[str, np.ndarray]
    _present: dict[str, np.ndarray]
    _nesting: tuple[Nested, Nested] | None

    def __init__(self, n: int, discount: float, num_envs: int) -> None:
        if n < 1 or num_envs < 1 or not 0.0 <= discount <= 1.0:
            raise ConfigError(
                "n-step windows need n >= 1, num_envs >= 1 and a discount in [0, 1]",
                received=f"n={n!r}, num_envs={num_envs!r}, discount={discount!r}",
            )
        self.n, self.discount, self.num_envs = n, discount, num_envs
        self._powers = discount ** np.arange(n + 1, dtype=np.float64)
        self.reset()

    @staticmethod
    def record_space(observation_space: Space, action_space: Space) -> Dict:
        """The space of the transitions that `add` returns, with a batch rank: what to build a memory with."""
        return Dict(
            observations=observation_space.strip_ranks(),
            actions=action_space.strip_ranks(),
            rewards=FloatBox(),
            terminated=BoolBox(),
            next_observations=observation_space.strip_ranks(),
            discounts=FloatBox(low=0.0, high=1.0),
        ).with_batch_rank()

    def add(
        self,
        observations: Nested,
        actions: Nested,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_observations: Nested,
        valid: npt.ArrayLike | None = None,
    ) -> dict[str, Any]:
        """Takes one step of all sub-environments: `extend` without the axis of time, (B, ...) everywhere."""
        step = observations, actions, rewards, terminated, truncated, next_observations, valid
        return self.extend(*tree_map(lambda leaf: np.asarray(leaf)[None], step))

    def extend(
        self,
        observations: Nested,
        actions: Nested,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_observations: Nested,
        valid: npt.ArrayLike | None = None,
    ) -> dict[str, Any]:
        """Takes T steps of all sub-environments; everything is copied.

        Args:
            observations: What the actions were chosen on, (T, B, ...) per leaf.
            actions: (T, B, ...) per leaf.
            rewards: (T, B).
            terminated: (T, B), bool.
            truncated: (T, B), bool.
            next_observations: What the actions led to, (T, B, ...) per leaf; final observations where an episode ended.
            valid: Rows that are transitions, bool (T, B); the others are left out. None: all.

        Returns:
            The N >= 0 transitions that became complete, as fresh arrays (N, ...): observations and actions (of a
            window's first step), rewards (`r_0 + g r_1 + ...`, float32), next_observations and terminated (of its last
            step), and discounts: g^(steps used), 0 where terminated, float32. They come in the order of the steps that
            completed them, and of one step in the order of the sub-environments (so accumulators of parts of them give,
            side by side, what one of all gives); of one sub-environment, windows that started earlier come first.

        Raises:
            ExecutionError: A row in the middle of an episode is marked as no transition.
        """
        if self.n == 1 and valid is None and self._nesting is not None:
            return self._whole(observations, actions, rewards, terminated, next_observations)
        is_end, is_cut = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        reward = np.asarray(rewards, np.float64)
        is_row = np.ones(reward.shape, np.bool_) if valid is None else np.asarray(valid, np.bool_)
        ended = is_end | is_cut
        if valid is not None:
            reward, is_end, ended = np.where(is_row, reward, 0.0), is_end & is_row, ended & is_row
            self._refuse_gap(is_row, ended)
        first, after = {"observations": observations, "actions": actions}, {"next_observations": next_observations}
        if self._nesting is None:
            self._nesting = tree_map(lambda leaf: None, (first, after))
        new = {path: np.asarray(value) for path, value in flatten_tree(first).items()}
        last = {path: np.asarray(value) for path, value in flatten_tree(after).items()}
        self._present = {path: value[-1].copy() for path, value in last.items()}
        if held := len(self._rewards):
            new = {path: np.concatenate((self._first[path], value)) for path, value in new.items()}
            reward = np.concatenate((self._rewards, reward))
            is_row = np.concatenate((np.arange(held, 0, -1)[:, None] <= self._open, is_row))
            ended = np.concatenate((np.zeros((held, self.num_envs), np.bool_), ended))
        return self._collect(new, last, reward, is_row, ended, is_end)

    def flush(self) -> dict[str, Any] | None:
        """Ends all open windows after the steps they have, as if the last step had been truncated.

        Returns:
            As `extend`; None before the first step.

        Raises:
            ExecutionError: After `load_state_dict`, before the first `add`.
        """
        if not self._present:
            return None
        if self._nesting is None:
            raise ExecutionError(
                "the nesting of observations and actions is not known yet",
                where="NStepAccumulator.flush",
                fix="after load_state_dict, add a step before flush",
            )
        is_row = np.arange(len(self._rewards), 0, -1)[:, None] <= self._open
        ended = np.zeros(is_row.shape, np.bool_)
        ended[-1:] = True
        last = {path: value[None] for path, value in self._present.items()}
        return self._collect(self._first, last, self._rewards, is_row, ended, np.zeros((1, self.num_envs), np.bool_))

    def reset(self) -> None:
        """Drops all open windows."""
        # The newest steps, up to n - 1 of them, in which windows may be open: of how many, by sub-environment (B,);
        # rewards (H, B); observations and actions (H, B, ...) by path. And what the newest one led to, (B, ...).
        self._open = np.zeros(self.num_envs, np.int64)
        self._rewards = np.zeros((0, self.num_envs))
        self._first, self._present, self._nesting = {}, {}, None

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of everything that open windows hold, by name."""
        state = {"n": np.array(self.n), "open": self._open.copy(), "rewards": self._rewards.copy()}
        state |= {f"first/{path}": array.copy() for path, array in self._first.items()}
        if self.n > 1:  # no window of one step is ever open
            state |= {f"present/{path}": array.copy() for path, array in self._present.items()}
        return state

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state_dict` gave.

        Raises:
            CheckpointError: It was saved with another n or number of sub-environments; then nothing has changed.
        """
        sizes = int(state["n"]), len(state["open"])
        if sizes != (self.n, self.num_envs):
            raise CheckpointError(
                "the open n-step windows do not fit",
                received=f"(n, num_envs) = {sizes}",
                fix=f"load them into an accumulator of these sizes, not {(self.n, self.num_envs)}",
            )
        self.reset()
        self._open, self._rewards = np.array(state["open"]), np.array(state["rewards"])
        for prefix, arrays in (("first/", self._first), ("present/", self._present)):
            arrays.update({p.removeprefix(prefix): np.array(x) for p, x in state.items() if p.startswith(prefix)})

    def _collect(
        self,
        first: dict[str, np.ndarray],
        last: dict[str, np.ndarray],
        rewards: np.ndarray,
        is_row: Bools,
        ended: Bools,
        terminated: Bools,
    ) -> dict[str, Any]:
        """Transitions of the windows that are complete; what the others need is kept.

        Args:
            first: Observations and actions by path, (H + T, B, ...), of H steps that were kept and T new ones.
            last: Next observations by path, (T, B, ...).
            rewards: (H + T, B).
            is_row: Where an open window starts, (H + T, B).
            ended: Where an episode ends, (H + T, B).
            terminated: (T, B).
        """
        assert self._nesting is not None
        steps, n = len(rewards), self.n
        returns, used, goes_on = rewards + 0.0, np.ones(rewards.shape, np.int64), ~ended
        for ahead in range(1, min(n, steps)):
            joins = goes_on[:-ahead]
            returns[:-ahead] += self._powers[ahead] * np.where(joins, rewards[ahead:], 0.0)
            used[:-ahead] += joins
            goes_on[:-ahead] &= ~ended[ahead:]
        complete = is_row & (~goes_on | (used == n))
        at, envs = complete.nonzero()
        used = used[at, envs]
        end = at + used - 1
        if n > 1:
            order = np.lexsort((at, envs, end))
            at, envs, used, end = at[order], envs[order], used[order], end[order]
        last_at = end - (steps - len(terminated))
        is_end = terminated[last_at, envs]
        transitions = {
            **unflatten_like(self._nesting[0], {path: array[at, envs] for path, array in first.items()}),
            **unflatten_like(self._nesting[1], {path: array[last_at, envs] for path, array in last.items()}),
            "rewards": returns[at, envs].astype(np.float32),
            "terminated": is_end,
            "discounts": (self._powers[used] * ~is_end).astype(np.float32),
        }
        kept = max(steps + 1 - n, 0)
        self._open = (is_row & ~complete).sum(axis=0)
        self._rewards = rewards[kept:].copy()
        self._first = {path: array[kept:].copy() for path, array in first.items()}
        return transitions

    def _whole(
        self, observations: Nested, actions: Nested, rewards: Any, terminated: Any, after: Nested
    ) -> dict[str, Any]:
        """What `_collect` gives where each step is a transition, and no window stays open."""
        is_end = _as_rows(terminated)
        return {
            "observations": tree_map(_as_rows, observations),
            "actions": tree_map(_as_rows, actions),
            "next_observations": tree_map(_as_rows, after),
            "rewards": _as_rows(rewards).astype(np.float32, copy=False),
            "terminated": is_end,
            "discounts": (self._powers[1] * ~is_end).astype(np.float32),
        }

    def _refuse_gap(self, valid: Bools, ended: Bools) -> None:
        inside = self._open
        for row, end in zip(valid, ended, strict=True):
            gaps = np.flatnonzero(~row & (inside > 0))
            if len(gaps):
                raise ExecutionError(
                    "a row is no transition, but its sub-environment is in the middle of an episode",
                    where="NStepAccumulator.add",
                    received=f"valid[{gaps[0]}] = False with {inside[gaps[0]]} steps of open windows",
                    fix="mark the step before as terminated or truncated, or call flush() before a reset",
                )
            inside = np.where(end, 0, np.minimum(inside + row, self.n - 1))


def _as_rows(leaf: Any) -> np.ndarray:
    """A copy (T * B, ...) of an array (T, B, ...)."""
    array = np.array(leaf)
    return array.reshape((array.shape[0] * array.shape[1], *array.shape[2:]))  # -1 is not known of empty leaves

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

    def __init__(self, n: int, discount: float, num_envs: int) -> None:
        if n < 1 or num_envs < 1 or not 0.0 <= discount <= 1.0:
            raise ConfigError(
                "n-step windows need n >= 1, num_envs >= 1 and a discount in [0, 1]",
                received=f"n={n!r}, num_envs={num_envs!r}, discount={discount!r}",
            )
        self.n, self.discount, self.num_envs = n, discount, num_envs
        self._powers = discount ** np.arange(n + 1, dtype=np.float64)
        # factor of the present reward for the window in each slot of the ring, by present slot
        self._factors = np.stack([self._powers[(slot - np.arange(n)) % n] for slot in range(n)])[:, :, None]
        self._ages = np.arange(n - 1, -1, -1)[:, None]  # steps since a window started, oldest first
        self._all = np.ones(num_envs, np.bool_)
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
        """Takes one step of all sub-environments; everything is copied.

        Args:
            observations: What the actions were chosen on, (B, ...) per leaf.
            actions: (B, ...) per leaf.
            rewards: (B,).
            terminated: (B,), bool.
            truncated: (B,), bool.
            next_observations: What the actions led to, (B, ...) per leaf; final observations where an episode ended.
            valid: Rows that are transitions, bool (B,); the others are left out. None: all.

        Returns:
            The N >= 0 transitions that became complete, as fresh arrays (N, ...): observations and actions (of a
            window's first step), rewards (`r_0 + g r_1 + ...`, float32), next_observations and terminated (of its last
            step), and
            discounts: g^(steps used), 0 where terminated, float32. Windows that started earlier come first, those
            that started together in the order of the sub-environments.

        Raises:
            ExecutionError: A row in the middle of an episode is marked as no transition.
        """
        is_end, is_cut = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        reward = np.asarray(rewards, np.float64)
        is_row = self._all if valid is None else np.asarray(valid, np.bool_)
        if valid is not None:
            self._refuse_gap(is_row)
            reward, is_end, is_cut = np.where(is_row, reward, 0.0), is_end & is_row, is_cut & is_row
        slot = self._step % self.n
        self._write(slot, {"observations": observations, "actions": actions}, {"next_observations": next_observations})
        self._returns[slot] = 0.0
        self._returns += self._factors[slot] * reward
        self._open += is_row
        self._step += 1
        complete = self._open > self._ages
        ended = is_end | is_cut
        if ended.any():
            complete[1:] &= ended
            self._open[ended] = 0
        else:
            complete[1:] = False
        np.minimum(self._open, self.n - 1, out=self._open)
        return self._collect(slot, complete, is_end)

    def flush(self) -> dict[str, Any] | None:
        """Ends all open windows after the steps they have, as if the last step had been truncated.

        Returns:
            As `add`; None before the first step.

        Raises:
            ExecutionError: After `load_state_dict`, before the first `add`.
        """
        if self._step == 0:
            return None
        if self._nesting is None:
            raise ExecutionError(
                "the nesting of observations and actions is not known yet",
                where="NStepAccumulator.flush",
                fix="after load_state_dict, add a step before flush",
            )
        complete = self._open > self._ages
        self._open[:] = 0
        return self._collect((self._step - 1) % self.n, complete, ~self._all)

    def reset(self) -> None:
        """Drops all open windows."""
        self._step = 0
        self._open = np.zeros(self.num_envs, np.int64)
        self._returns = np.zeros((self.n, self.num_envs))
        # Made from the first step: rings (n, B, ...) of a window's first step, and the present step (B, ...), by path.
        self._rings: dict[str, np.ndarray] = {}
        self._present: dict[str, np.ndarray] = {}
        self._nesting: tuple[Nested, Nested] | None = None

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of everything that open windows hold, by name."""
        state = {"step": np.array(self._step), "open": self._open.copy(), "returns": self._returns.copy()}
        state |= {f"rings/{path}": array.copy() for path, array in self._rings.items()}
        state |= {f"present/{path}": array.copy() for path, array in self._present.items()}
        return state

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state_dict` gave.

        Raises:
            CheckpointError: It was saved with another n or number of sub-environments; then nothing has changed.
        """
        if np.shape(state["returns"]) != (self.n, self.num_envs):
            raise CheckpointError(
                "the open n-step windows do not fit",
                received=f"(n, num_envs) = {np.shape(state['returns'])}",
                fix=f"load them into an accumulator of these sizes, not {(self.n, self.num_envs)}",
            )
        self.reset()
        self._step = int(state["step"])
        self._open, self._returns = np.array(state["open"]), np.array(state["returns"])
        for prefix, arrays in (("rings/", self._rings), ("present/", self._present)):
            arrays.update({p.removeprefix(prefix): np.array(x) for p, x in state.items() if p.startswith(prefix)})

    def _write(self, slot: int, first: Nested, present: Nested) -> None:
        flat_first, flat_present = flatten_tree(first), flatten_tree(present)
        if not self._rings:
            for path, value in flat_first.items():
                array = np.asarray(value)
                self._rings[path] = np.zeros((self.n, *array.shape), array.dtype)
            self._present.update({path: np.array(value) for path, value in flat_present.items()})
        if self._nesting is None:
            self._nesting = tree_map(lambda leaf: None, (first, present))
        for path, ring in self._rings.items():
            ring[slot] = flat_first[path]
        for path, array in self._present.items():
            array[...] = flat_present[path]

    def _collect(self, slot: int, complete: Bools, terminated: Bools) -> dict[str, Any]:
        """Transitions of the complete windows.

        Args:
            slot: Slot of the present step.
            complete: By age (oldest first) and sub-environment, (n, B).
            terminated: Of the present step, (B,).
        """
        assert self._nesting is not None
        rows, envs = complete.nonzero()
        ages = self._ages[rows, 0]
        slots = (slot - ages) % self.n
        first = {path: ring[slots, envs] for path, ring in self._rings.items()}
        present = {path: array[envs] for path, array in self._present.items()}
        is_end = terminated[envs]
        return {
            **unflatten_like(self._nesting[0], first),
            **unflatten_like(self._nesting[1], present),
            "rewards": self._returns[slots, envs].astype(np.float32),
            "terminated": is_end,
            "discounts": (self._powers[ages + 1] * ~is_end).astype(np.float32),
        }

    def _refuse_gap(self, valid: Bools) -> None:
        gaps = np.flatnonzero(~valid & (self._open > 0))
        if len(gaps):
            raise ExecutionError(
                "a row is no transition, but its sub-environment is in the middle of an episode",
                where="NStepAccumulator.add",
                received=f"valid[{gaps[0]}] = False with {self._open[gaps[0]]} steps of open windows",
                fix="mark the step before as terminated or truncated, or call flush() before a reset",
            )

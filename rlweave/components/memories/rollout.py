"""Rollouts: a fixed number of steps of a vector environment, as time-major arrays for on-policy learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.errors import ConfigError, ExecutionError, nearest
from rlweave.spaces import BoolBox, Dict, FloatBox, Space

Nested = Any


@dataclass(frozen=True)
class Rollout:
    """T steps of B sub-environments, and what is needed to bootstrap from each of them.

    Attributes:
        data: Arrays (T, B, ...) by name: what was added, `rewards` (float32), `terminated`, `truncated`, and two
            more: `episode_start`, True where `observations` is the first observation of an episode (recurrent state
            starts anew there), and `valid`, False where a row is no transition and has to stay out of every loss.
        bootstrap_observations: Observations (N, ...) whose values `next_values` wants: the B that the last steps led
            to, then the final ones of episodes that were truncated before the last step, then zeros. N is a power of
            two, so that a compiled value function sees few sizes.
        final_steps: Steps of the truncated episodes' ends, int (K,).
        final_envs: Their sub-environments, int (K,).
    """

    data: dict[str, Any]
    bootstrap_observations: Nested
    final_steps: npt.NDArray[np.int64]
    final_envs: npt.NDArray[np.int64]

    def next_values(self, values: npt.NDArray[Any], bootstrap_values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """V of the observation that each step really led to, as the estimators in `returns` want it.

        Args:
            values: V of `data["observations"]`, (T, B).
            bootstrap_values: V of `bootstrap_observations`, (N,).

        Returns:
            (T, B): `values` one step later; of the final observation where truncated. (At terminated steps there is
            a number without a meaning.)
        """
        envs = values.shape[1]
        following = np.empty_like(values)
        following[:-1] = values[1:]
        following[-1] = bootstrap_values[:envs]
        following[self.final_steps, self.final_envs] = bootstrap_values[envs : envs + len(self.final_steps)]
        return following


class RolloutStorage:
    """Preallocated NumPy arrays for `steps` steps of `num_envs` sub-environments.

    Final observations are kept only for the steps that need them: those where an episode was truncated.

    Args:
        steps: Length T of a rollout.
        num_envs: Number of sub-environments B.
        space: What is kept of every step besides rewards and flags, without ranks: `observations` and anything else,
            for instance `Dict(observations=..., actions=..., log_probs=FloatBox(), values=FloatBox())`.
    """

    def __init__(self, steps: int, num_envs: int, space: Dict) -> None:
        if steps < 1 or num_envs < 1:
            raise ConfigError("a rollout has 1 step or more", received=f"steps={steps!r}, num_envs={num_envs!r}")
        taken = {"rewards", "terminated", "truncated", "valid", "episode_start"} & set(space)
        if "observations" not in space or taken:
            raise ConfigError(
                "the space of a rollout needs 'observations', and no rewards or flags (they are always kept)",
                received=f"keys {list(space)}",
                fix=f"take out {sorted(taken)}" if taken else "add observations=<observation space>",
            )
        self.steps, self.num_envs, self.space = steps, num_envs, space.strip_ranks()
        self._leaves = self.space.flatten()
        self._observation_space: Space = self.space["observations"]
        self._start = np.ones(num_envs, np.bool_)
        self._last: dict[str, np.ndarray] = {}
        self._clear()

    @property
    def full(self) -> bool:
        """Whether the rollout is complete, so that `get` hands it out."""
        return self._position == self.steps

    def __len__(self) -> int:
        """Steps kept so far."""
        return self._position

    def add(
        self,
        fields: dict[str, Nested],
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_observations: Nested,
        valid: npt.ArrayLike | None = None,
    ) -> None:
        """Takes one step of all sub-environments; everything is copied.

        Args:
            fields: What `space` says, (B, ...) per leaf: `observations` acted on, and the rest.
            rewards: (B,).
            terminated: (B,), bool.
            truncated: (B,), bool.
            next_observations: What the actions led to, (B, ...) per leaf; final observations where an episode ended.
            valid: Rows that are transitions, bool (B,). None: all.

        Raises:
            ExecutionError: The rollout is complete already.
        """
        if self.full:
            raise ExecutionError(
                "a step was added to a complete rollout",
                where="RolloutStorage.add",
                received=f"step {self.steps + 1} of {self.steps}",
                fix="take it out with get() as soon as `full` says so",
            )
        if fields.keys() != set(self.space):
            wrong = sorted(fields.keys() ^ set(self.space))[0]
            raise ExecutionError(
                "a step has other fields than the rollout",
                where=f"RolloutStorage.add, field {wrong!r}",
                received=f"fields {sorted(fields)}",
                fix=nearest(wrong, self.space) if wrong in fields else f"add {wrong!r}",
            )
        step, flags = self._position, self._flags
        for path, value in self.space.flatten_value(fields).items():
            self._arrays[path][step] = value
        self._rewards[step] = rewards
        flags["terminated"][step], flags["truncated"][step] = terminated, truncated
        flags["episode_start"][step] = self._start
        flags["valid"][step] = True if valid is None else valid
        if valid is not None:
            flags["terminated"][step] &= flags["valid"][step]
            flags["truncated"][step] &= flags["valid"][step]
        ended = flags["terminated"][step] | flags["truncated"][step]
        # a row that is no transition is the reset after an end, so an episode starts behind it
        self._start = ended | ~flags["valid"][step]
        self._position += 1
        if self._position == self.steps:
            self._last = {
                path: np.array(x) for path, x in self._observation_space.flatten_value(next_observations).items()
            }
        elif ended.any():
            envs = np.flatnonzero(flags["truncated"][step] & ~flags["terminated"][step])
            if len(envs):
                self._final_steps.append(np.full(len(envs), step))
                self._final_envs.append(envs)
                flat = self._observation_space.flatten_value(next_observations)
                self._finals.append({path: np.asarray(x)[envs] for path, x in flat.items()})

    def get(self) -> Rollout:
        """Hands the complete rollout out and starts the next one.

        The arrays are the caller's: the storage takes new ones, and never writes into these again. (A backend that
        reads them in place and later, as JAX does on the CPU, sees what was collected.)

        Raises:
            ExecutionError: The rollout is not complete.
        """
        if not self.full:
            raise ExecutionError(
                "the rollout is not complete",
                where="RolloutStorage.get",
                received=f"{self._position} of {self.steps} steps",
                fix="add steps until `full`",
            )
        count = sum(map(len, self._final_envs))
        rows = 1 << (self.num_envs + count - 1).bit_length()
        bootstrap = {}
        for path, last in self._last.items():
            padding = np.zeros((rows - self.num_envs - count, *last.shape[1:]), last.dtype)
            bootstrap[path] = np.concatenate([last, *(final[path] for final in self._finals), padding]).astype(
                self._arrays[f"observations/{path}" if path else "observations"].dtype, copy=False
            )
        empty = np.zeros(0, np.int64)
        rollout = Rollout(
            data={**self.space.unflatten(self._arrays), "rewards": self._rewards, **self._flags},
            bootstrap_observations=self._observation_space.unflatten(bootstrap),
            final_steps=np.concatenate([empty, *self._final_steps]),
            final_envs=np.concatenate([empty, *self._final_envs]),
        )
        self._clear()
        return rollout

    def reset(self) -> None:
        """Drops the steps kept so far; the environments were reset, so episodes start with the next step."""
        self._start = np.ones(self.num_envs, np.bool_)
        self._clear()

    def data_space(self) -> Dict:
        """The space of `Rollout.data`, with time and batch ranks."""
        flags = {name: BoolBox() for name in self._flags}
        space = Dict({**{key: self.space[key] for key in self.space}, "rewards": FloatBox(), **flags})
        return space.with_batch_rank().with_time_rank()

    def _clear(self) -> None:
        shape = (self.steps, self.num_envs)
        self._arrays = {path: np.empty((*shape, *box.feature_shape), box.dtype) for path, box in self._leaves.items()}
        self._rewards = np.empty(shape, np.float32)
        self._flags = {
            name: np.empty(shape, np.bool_) for name in ("terminated", "truncated", "episode_start", "valid")
        }
        self._position = 0
        self._last = {}
        self._finals: list[dict[str, np.ndarray]] = []
        self._final_steps: list[np.ndarray] = []
        self._final_envs: list[np.ndarray] = []

"""Trajectories from single observed steps, by environment; and small things about single and batched observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.errors import ExecutionError, SpaceError
from rlweave.spaces import Box, IntBox, Space
from rlweave.tree import tree_leaves, tree_map

Step = dict[str, Any]


class StepAssembler:
    """Completes single steps of named environments with the observation that came after.

    It may come with the step itself, or be left out where the episode goes on: then it is the next step's.
    """

    def __init__(self) -> None:
        self._pending: dict[Any, Step] = {}

    def observe(
        self,
        env_id: Any,
        state: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_state: Any = None,
        **extra: Any,
    ) -> list[Step]:
        """Takes in one step, and returns those that are complete now, in order.

        Raises:
            ExecutionError: An episode ended without its last observation; then nothing has changed.
        """
        if next_state is None and (terminated or truncated):
            raise ExecutionError(
                "an episode ended without its last observation",
                where=f"environment {env_id!r}",
                fix="pass next_state where terminated or truncated is set; values bootstrap from it",
            )
        state = _copied(state)
        pending = self._pending.pop(env_id, None)
        complete = [] if pending is None else [{**pending, "next_observations": state}]
        step = {
            "observations": state,
            "actions": _copied(action),
            "rewards": np.float32(reward),
            "terminated": np.bool_(terminated),
            "truncated": np.bool_(truncated),
            **extra,
        }
        if next_state is None:
            self._pending[env_id] = step
        else:
            complete.append({**step, "next_observations": _copied(next_state)})
        return complete


class TrajectoryAssembler:
    """Collects steps of named environments until rollouts of a length are complete.

    Args:
        steps: Length T of a rollout.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._assembler = StepAssembler()
        self._complete: dict[Any, list[Step]] = {}

    def observe(self, env_id: Any, *step: Any, **extra: Any) -> None:
        """Takes in one step; see `StepAssembler.observe`."""
        self._complete.setdefault(env_id, []).extend(self._assembler.observe(env_id, *step, **extra))

    def lengths(self) -> dict[Any, int]:
        """Complete steps by environment."""
        return {name: len(steps) for name, steps in self._complete.items()}

    def complete(self, num_envs: int) -> bool:
        """Whether so many environments have a whole rollout."""
        return sum(len(steps) >= self.steps for steps in self._complete.values()) >= num_envs

    def take(self, num_envs: int) -> dict[str, Any]:
        """The rollouts of so many environments as arrays (T, B, ...), which are removed here."""
        names = [name for name, steps in self._complete.items() if len(steps) >= self.steps][:num_envs]
        rows = [self._complete[name][: self.steps] for name in names]
        for name in names:
            self._complete[name] = self._complete[name][self.steps :]
        return {key: stack([stack([steps[t][key] for steps in rows]) for t in range(self.steps)]) for key in rows[0][0]}


def fitted(space: Space, value: Any, where: str) -> Any:
    """A copy of one element of a space, cast to its dtypes.

    Args:
        space: Without ranks.
        value: Nested like the space; leaves may be lists and numbers.
        where: What it is, for errors.

    Raises:
        ExecutionError: Another nesting or shape, a number that is not finite, or an integer outside of its range.
    """
    try:
        flat = space.flatten_value(value) if not isinstance(space, Box) else {"": value}
    except SpaceError as error:
        raise ExecutionError(
            "a value is nested unlike its space", where=where, received=str(error), fix=f"pass {space!r}"
        ) from None
    arrays = {}
    for path, leaf in space.flatten().items():
        assert isinstance(leaf, Box)
        array = np.asarray(flat[path])
        name = f"{where}, leaf {path!r}" if path else where
        if array.shape != leaf.feature_shape:
            raise ExecutionError(
                "a value has another shape than its space",
                where=name,
                received=f"shape {array.shape}",
                fix=f"pass shape {leaf.feature_shape}",
            )
        if leaf.dtype.startswith("float"):
            if not np.isfinite(array).all():
                raise ExecutionError("a value is not finite", where=name, received=str(array), fix="repair its source")
        elif isinstance(leaf, IntBox) and not (np.all(array >= leaf.low) and np.all(array < leaf.high)):
            raise ExecutionError(
                "an integer is out of its range", where=name, received=str(array), fix=f"pass {leaf!r}"
            )
        arrays[path] = np.array(array, leaf.dtype)
    return space.unflatten(arrays)


def finite(value: Any, where: str) -> np.float32:
    """A reward as float32.

    Raises:
        ExecutionError: It is no finite number.
    """
    if not np.isfinite(value):
        raise ExecutionError("a reward is not finite", where=where, received=str(value), fix="repair the environment")
    return np.float32(value)


def same(first: Any, second: Any) -> bool:
    """Whether two nested values are equal."""
    return all(tree_leaves(tree_map(np.array_equal, first, second)))


def _copied(value: Any) -> Any:
    return tree_map(np.array, value)


def stack(items: Sequence[Any]) -> Any:
    """Stacks equally nested arrays along a new first axis.

    >>> stack([{"a": np.zeros(2)}, {"a": np.ones(2)}])["a"].shape
    (2, 2)
    """
    return tree_map(lambda *leaves: np.array(leaves), *items)


def is_single(space: Space, value: Any) -> bool:
    """Whether a value is one element of a space (without ranks), and not a batch of them."""
    for path, leaf in space.flatten().items():
        assert isinstance(leaf, Box)
        item = space.flatten_value(value)[path]
        return np.ndim(item) == len(leaf.shape)
    return False


def add_axis(value: Any) -> Any:
    """A batch of one."""
    return tree_map(lambda leaf: np.asarray(leaf)[None], value)


def first_row(value: Any) -> Any:
    """The first row of a batch."""
    return tree_map(lambda leaf: leaf[0], value)

"""``SampleBatch``, the usual item of a plan: nested NumPy arrays, and how their axes are laid out; one per policy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlweave.errors import SpaceError
from rlweave.flow.codec import saved_as
from rlweave.tree import tree_map

Layout = Literal["rows", "trajectories"]


@saved_as("sample_batch")
class SampleBatch:
    """Environment steps as NumPy arrays, nested in dicts and tuples: the caller's own arrays, not copied or converted.

    Two layouts:

    * ``"rows"``: every leaf is ``(N, ...)``, one independent transition per row.
    * ``"trajectories"``: every leaf is time-major ``(T, B, ...)``, B fragments of T steps each. Leaves below the
      top-level keys in ``per_trajectory`` have no time axis, ``(B, ...)``: the observation after the last step,
      a recurrent state at the first one.

    >>> import numpy as np
    >>> batch = SampleBatch({"observations": {"a": np.zeros((5, 2))}, "rewards": np.zeros(5)})
    >>> batch.num_steps, batch["observations"]["a"].shape
    (5, (5, 2))
    >>> SampleBatch.concat([batch, batch.slice(0, 2)]).num_steps
    7

    Args:
        data: Arrays by name; a value may be a dict with string keys or a tuple of arrays, nested at will.
        layout: ``"rows"`` or ``"trajectories"``.
        per_trajectory: Top-level keys whose leaves have no time axis; only with ``"trajectories"``.
        env_steps: Environment steps in the batch if they are not one per row, such as in multi-agent batches or
            with rows that are masked out. Default: N, or T * B.

    Raises:
        SpaceError: If leaves disagree in their leading axes; the message names the leaf.
    """

    __slots__ = ("_env_steps", "data", "layout", "leading", "per_trajectory")

    def __init__(
        self,
        data: Mapping[str, Any],
        layout: Layout = "rows",
        per_trajectory: Iterable[str] = (),
        env_steps: int | None = None,
    ) -> None:
        self.data = dict(data)
        self.layout = layout
        self.per_trajectory = frozenset(per_trajectory)
        self._env_steps = env_steps
        self.leading = self._leading_axes()

    def _leading_axes(self) -> tuple[int, ...]:
        """``(N,)`` or ``(T, B)``, after checking that all leaves agree."""
        if self.layout not in ("rows", "trajectories"):
            raise SpaceError(
                "unknown layout", where="SampleBatch", received=repr(self.layout), fix="use 'rows' or 'trajectories'"
            )
        unknown = self.per_trajectory - self.data.keys()
        if unknown or (self.per_trajectory and self.layout == "rows"):
            raise SpaceError(
                "per_trajectory names keys of a batch in layout 'trajectories'",
                where="SampleBatch",
                received=f"{sorted(self.per_trajectory)} with layout {self.layout!r} and keys {sorted(self.data)}",
                fix="name top-level keys of the data, and use layout 'trajectories'",
            )
        rank = 1 if self.layout == "rows" else 2
        leading: tuple[int, ...] | None = None
        first = ""
        leaves = list(self._leaves())
        for path, timeless, leaf in leaves:
            if leaf.ndim < (1 if timeless else rank):
                raise SpaceError(
                    "a leaf has too few axes for the batch's layout",
                    where=f"leaf {path!r} of a SampleBatch in layout {self.layout!r}",
                    received=f"shape {leaf.shape}",
                    fix="give it leading axes (N, ...) for 'rows', (T, B, ...) for 'trajectories', "
                    "or name its top-level key in per_trajectory for (B, ...)",
                )
            if not timeless and leading is None:
                leading, first = leaf.shape[:rank], path
        if leading is None:
            leading = (0,) * rank
        for path, timeless, leaf in leaves:
            expected = leading[1:] if timeless else leading
            if leaf.shape[: len(expected)] != expected:
                raise SpaceError(
                    "the leaves of a batch disagree in their leading axes",
                    where=f"leaf {path!r} of a SampleBatch in layout {self.layout!r}",
                    received=f"shape {leaf.shape}, where leaf {first!r} says {expected}",
                    fix="every leaf needs the same leading axes",
                )
        return leading

    def _leaves(self) -> Iterator[tuple[str, bool, np.ndarray]]:
        for key, value in self.data.items():
            timeless = key in self.per_trajectory
            if isinstance(value, np.ndarray):  # the usual case, and this runs for every batch
                yield key, timeless, value
                continue
            for path, leaf in _walk(key, value):
                yield path, timeless, leaf

    @property
    def num_steps(self) -> int:
        """Environment steps in the batch."""
        if self._env_steps is not None:
            return self._env_steps
        return self.leading[0] if self.layout == "rows" else self.leading[0] * self.leading[1]

    def __len__(self) -> int:
        """The same as ``num_steps``."""
        return self.num_steps

    def __bool__(self) -> bool:
        """Always true: an empty batch is still a batch."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays take."""
        return sum(leaf.nbytes for _, _, leaf in self._leaves())

    def __getitem__(self, key: str) -> Any:
        """The array (or nested dict) at a top-level key."""
        return self.data[key]

    def __contains__(self, key: object) -> bool:
        """Whether a top-level key exists."""
        return key in self.data

    def __repr__(self) -> str:
        shapes = ", ".join(f"{path}: {leaf.dtype}{list(leaf.shape)}" for path, _, leaf in self._leaves())
        return f"SampleBatch({self.layout}, {self.num_steps} steps, {{{shapes}}})"

    def slice(self, start: int, stop: int) -> SampleBatch:
        """Rows ``start:stop``, or trajectories ``start:stop`` (along B, all their steps), as views.

        Raises:
            SpaceError: If the batch declares its own number of environment steps, which a part cannot know.
        """
        if self._env_steps is not None:
            raise SpaceError(
                "a batch with its own number of environment steps cannot be sliced",
                where="SampleBatch.slice",
                received=f"env_steps={self._env_steps}",
                fix="slice before declaring env_steps",
            )
        return self._map(
            lambda timeless, leaf: leaf[start:stop] if timeless or self.layout == "rows" else leaf[:, start:stop], None
        )

    def copy(self) -> SampleBatch:
        """The same batch with its own arrays."""
        return self._map(lambda _, leaf: leaf.copy(), self._env_steps)

    def _map(self, function: Callable[[bool, np.ndarray], np.ndarray], env_steps: int | None) -> SampleBatch:
        data = {
            key: tree_map(functools.partial(function, key in self.per_trajectory), value)
            for key, value in self.data.items()
        }
        return SampleBatch(data, self.layout, self.per_trajectory, env_steps)

    @staticmethod
    def concat(batches: Sequence[SampleBatch]) -> SampleBatch:
        """Glues batches together in order: along N, or along B (fragments stay fragments; equal T is needed).

        A single batch comes back as it is, without a copy. Of one without data, only its environment steps count.

        Raises:
            SpaceError: If there is no batch, or if layouts, keys, shapes or numbers of steps differ.
        """
        if not batches:
            raise SpaceError("no batches to concatenate", where="SampleBatch.concat", fix="give at least one batch")
        if len(batches) == 1:
            return batches[0]
        declared = any(batch._env_steps is not None for batch in batches)
        env_steps = sum(batch.num_steps for batch in batches) if declared else None
        batches = [batch for batch in batches if batch.data] or batches[:1]
        first = batches[0]
        for other in batches[1:]:
            same_time = first.layout == "rows" or other.leading[0] == first.leading[0]
            if other.layout != first.layout or other.per_trajectory != first.per_trajectory or not same_time:
                raise SpaceError(
                    "batches of different form cannot be concatenated",
                    where="SampleBatch.concat",
                    received=f"{first!r} and {other!r}",
                    fix="use the same layout, the same per_trajectory keys and, in trajectories, the same T",
                )
        rows = first.layout == "rows"
        _same_form("", [batch.data for batch in batches])
        data = {
            key: _concat_leaves(
                key, [batch.data[key] for batch in batches], 0 if rows or key in first.per_trajectory else 1
            )
            for key in first.data
        }
        return SampleBatch(data, first.layout, first.per_trajectory, env_steps)

    def state_dict(self) -> dict[str, Any]:
        """Its arguments, for a checkpoint."""
        return {
            "layout": self.layout,
            "per_trajectory": sorted(self.per_trajectory),
            "env_steps": self._env_steps,
            "data": self.data,
        }


def _walk(path: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(f"{path}/{key}", inner)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _walk(f"{path}/{index}", inner)
    else:
        raise SpaceError(
            "a leaf of a batch is not a NumPy array",
            where=f"leaf {path!r} of a SampleBatch",
            received=type(value).__name__,
            fix="convert it with numpy.asarray before it travels; containers are dicts and tuples",
        )


def _same_form(path: str, values: Sequence[Any]) -> None:
    """Checks that containers have the same keys (in any order), or the same number of elements."""
    first = values[0]
    for other in values[1:]:
        keys = isinstance(first, Mapping) and isinstance(other, Mapping) and first.keys() == other.keys()
        length = isinstance(first, tuple) and isinstance(other, tuple) and len(first) == len(other)
        if not keys and not length:
            shown = [sorted(value) if isinstance(value, Mapping) else type(value).__name__ for value in (first, other)]
            raise SpaceError(
                "batches with different keys cannot be concatenated",
                where=f"SampleBatch.concat at {path or 'the top level'!r}",
                received=f"{shown[0]} and {shown[1]}",
                fix="make every worker deliver the same keys",
            )


def _concat_leaves(path: str, values: Sequence[Any], axis: int) -> Any:
    first = values[0]
    if isinstance(first, Mapping | tuple):
        _same_form(path, values)
    if isinstance(first, Mapping):
        return {key: _concat_leaves(f"{path}/{key}", [value[key] for value in values], axis) for key in first}
    if isinstance(first, tuple):
        return tuple(
            _concat_leaves(f"{path}/{index}", [value[index] for value in values], axis) for index in range(len(first))
        )
    try:
        return np.concatenate(values, axis=axis)
    except ValueError as error:
        raise SpaceError(
            "arrays of different shape cannot be concatenated",
            where=f"leaf {path!r} in SampleBatch.concat",
            received=", ".join(str(getattr(value, "shape", type(value).__name__)) for value in values),
            fix="all but the row or trajectory axis must be equal",
        ) from error


@saved_as("policy_batches")
class PolicyBatches(Mapping[str, SampleBatch]):
    """A batch for each policy, by name; ``stream.select(policy)`` takes one of them out.

    >>> import numpy as np
    >>> walkers, flyer = SampleBatch({"rewards": np.zeros(6)}), SampleBatch({"rewards": np.zeros(2)})
    >>> item = PolicyBatches({"walkers": walkers, "flyer": flyer}, joint_steps=2)
    >>> item.num_steps, item.joint_steps, sorted(item)
    (8, 2, ['flyer', 'walkers'])

    Args:
        batches: By policy name.
        joint_steps: Steps of environments, all agents together.
    """

    __slots__ = ("_batches", "joint_steps")

    def __init__(self, batches: Mapping[str, SampleBatch], joint_steps: int) -> None:
        self._batches = dict(batches)
        self.joint_steps = joint_steps

    @property
    def num_steps(self) -> int:
        """Steps of single agents: what counts as environment steps where there are several agents."""
        return sum(batch.num_steps for batch in self._batches.values())

    def __getitem__(self, policy: str) -> SampleBatch:
        """The batch of one policy."""
        return self._batches[policy]

    def __iter__(self) -> Iterator[str]:
        """Names of policies."""
        return iter(self._batches)

    def __len__(self) -> int:
        """Number of policies."""
        return len(self._batches)

    def __repr__(self) -> str:
        return f"PolicyBatches({self.joint_steps} joint steps, {self._batches})"

    def copy(self) -> PolicyBatches:
        """The same with arrays of its own."""
        return PolicyBatches({name: batch.copy() for name, batch in self._batches.items()}, self.joint_steps)

    @staticmethod
    def concat(items: Sequence[PolicyBatches]) -> PolicyBatches:
        """Glues items together, policy by policy.

        Raises:
            SpaceError: If they are not of the same policies.
        """
        for other in items[1:]:
            if other.keys() != items[0].keys():
                raise SpaceError(
                    "items of different policies cannot be concatenated",
                    where="PolicyBatches.concat",
                    received=f"{sorted(items[0])} and {sorted(other)}",
                )
        batches = {name: SampleBatch.concat([item[name] for item in items]) for name in items[0]}
        return PolicyBatches(batches, sum(item.joint_steps for item in items))

    def state_dict(self) -> dict[str, Any]:
        """Its arguments, for a checkpoint."""
        return {"batches": self._batches, "joint_steps": self.joint_steps}

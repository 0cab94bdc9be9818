"""The one place where a policy's own numbers become the environment's actions, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.action_leaves import ANY_KIND, OWN_DTYPES, ActionLeaf, action_leaves, as_space
from rlweave.spaces import Box, FloatBox, Space
from rlweave.spaces.containers import space_of


def to_environment(x: Any, leaf: ActionLeaf) -> Any:
    """What one leaf of a policy's action is to the environment (plain arrays, or inside a graph function).

    Args:
        x: The policy's own numbers, (..., *shape); see `ActionLeaf`.
        leaf: The leaf.

    Returns:
        int32, bool or float32 (..., *shape), within the leaf's bounds always.
    """
    if not leaf.changes:
        return x
    if leaf.kind == "categorical":
        return ops.add(x, leaf.lower)
    x = ops.clip(x, leaf.own_lower, leaf.own_upper)
    if not _is(leaf.half_width, 1.0):
        x = ops.multiply(x, leaf.half_width)
    if not _is(leaf.center, 0.0):
        x = ops.add(x, leaf.center)
    return ops.clip(x, leaf.lower, leaf.upper) if leaf.rounds else x


def from_environment(x: Any, leaf: ActionLeaf) -> Any:
    """The policy's own number for one leaf of an action: what `to_environment` makes that action of.

    Args:
        x: Actions of the environment, (..., *shape).
        leaf: The leaf.

    Returns:
        (..., *shape); a dimension with low == high has 0.
    """
    if not leaf.changes:
        return x
    if leaf.kind == "categorical":
        return ops.subtract(x, leaf.lower)
    if not _is(leaf.center, 0.0):
        x = ops.subtract(x, leaf.center)
    return x if _is(leaf.half_width, 1.0) else ops.divide(x, leaf.divisor)


def _is(value: Any, number: float) -> bool:
    """Whether a compact bound is this number for all dimensions."""
    return not isinstance(value, np.ndarray) and value == number


class ActionBoundary:
    """What stands between a policy and an environment's actions, for NumPy arrays (in graphs see `Joint`, `QPolicy`).

    Args:
        action_space: The environment's, any nested space of integers with a range, booleans and floats.
        where: The component or agent, for errors.
        kinds: Which kinds of leaves there may be; see `action_leaves`.

    Attributes:
        own_space: Space of the policy's own actions, without ranks: what it learns from.

    Raises:
        SpaceError: See `action_leaves`.

    >>> from rlweave.spaces import Dict, FloatBox, IntBox
    >>> boundary = ActionBoundary(Dict(gear=IntBox(-1, 2), wheel=FloatBox(100, 200)), "car")
    >>> boundary.own_space
    Dict(gear=IntBox(() int32 in [0, 3)), wheel=FloatBox(() float32))
    >>> boundary.to_environment({"gear": np.array([0, 2]), "wheel": np.array([0.5, -7], np.float32)})
    {'gear': array([-1,  1], dtype=int32), 'wheel': array([175., 100.], dtype=float32)}
    """

    def __init__(self, action_space: Space | Mapping[str, Any], where: str, kinds: frozenset[str] = ANY_KIND) -> None:
        self.action_space = as_space(action_space)
        self.leaves = action_leaves(self.action_space, where, kinds)
        self.own_space: Space = own_space(self.action_space, self.leaves)
        boxes = self.action_space.flatten()
        #: What there is to do: of most actions, indices from 0 among them, nothing.
        self._changed = [
            (leaf, boxes[leaf.path])
            for leaf in self.leaves
            if leaf.changes or OWN_DTYPES[leaf.kind] != boxes[leaf.path].dtype
        ]

    def to_environment(self, actions: Any) -> Any:
        """Actions of the space, of the dtypes that it declares, from the policy's own: nested (..., *shape) both."""
        if not self._changed:
            return actions
        flat = self.action_space.flatten_value(actions)
        for leaf, box in self._changed:
            flat[leaf.path] = _as_declared(to_environment(flat[leaf.path], leaf), box)
        return self.action_space.unflatten(flat)

    def from_environment(self, actions: Any) -> Any:
        """The policy's own actions from those of the space: nested (..., *shape) both."""
        flat = self.action_space.flatten_value(actions)
        own = {
            leaf.path: from_environment(np.asarray(flat[leaf.path], OWN_DTYPES[leaf.kind]), leaf)
            for leaf in self.leaves
        }
        return self.action_space.unflatten(own)


def own_space(action_space: Space, leaves: Sequence[ActionLeaf]) -> Space:
    """Space of the policy's own numbers, nested like the action space, without ranks."""
    return space_of(action_space.unflatten({leaf.path: leaf.own_space for leaf in leaves}))


def _as_declared(x: Any, box: Box) -> Any:
    """An action of the dtype that its space declares; a float that is rounded stays within the bounds."""
    if x.dtype == box.dtype:
        return x
    x = x.astype(box.dtype)
    return np.clip(x, box.low, box.high) if isinstance(box, FloatBox) else x

"""Masks of actions that are not allowed: a leaf of the observation says so, policies never choose the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave import ops
from rlweave.components.action_leaves import ActionLeaf, as_space
from rlweave.components.distributions import MASKED
from rlweave.errors import ExecutionError, SpecError, nearest
from rlweave.graph import graph_fn
from rlweave.graph.ir import Unknown
from rlweave.spaces import BoolBox, Box, IntBox, Space
from rlweave.tree import flatten_tree, has_leaf


def check_mask_leaf(
    mask_leaf: str | None,
    leaves: Sequence[ActionLeaf],
    observation_space: Space | Mapping[str, Any] | None,
    where: str,
) -> None:
    """Checks that a leaf of an observation can say which actions are allowed.

    Args:
        mask_leaf: Path of the leaf; None: none says so.
        leaves: Of the action space.
        observation_space: The observation space; None where it is not known yet.
        where: The component or agent, for errors.

    Raises:
        SpecError: Actions of several components, no such leaf, or one of another size.
    """
    if mask_leaf is None:
        return
    if len(leaves) != 1 or leaves[0].kind != "categorical" or leaves[0].shape:
        raise SpecError(
            "actions can be masked where one of N is chosen",
            where=where,
            received=f"mask_leaf={mask_leaf!r}, action leaves "
            + ", ".join(f"{leaf.path!r} ({leaf.kind} {leaf.shape})" for leaf in leaves),
            fix="an action space IntBox(n) and an algorithm for it, such as PPO or DQN; or no mask_leaf",
        )
    if observation_space is None:
        return
    paths = as_space(observation_space).flatten()
    if mask_leaf not in paths:
        raise SpecError(
            "the observation has no such leaf for a mask",
            where=where,
            received=f"mask_leaf={mask_leaf!r}",
            fix=nearest(mask_leaf, paths) if any(paths) else "observations that are a Dict with such a leaf",
        )
    leaf = paths[mask_leaf]
    assert isinstance(leaf, Box)
    if leaf.feature_shape != (leaves[0].categories,) or not isinstance(leaf, BoolBox | IntBox):
        raise SpecError(
            "a mask has a boolean (or 0 and 1) for each action",
            where=where,
            received=f"{leaf!r} for {leaves[0].categories} actions",
            fix=f"BoolBox(shape=({leaves[0].categories},))",
        )


def check_allowed(masks: npt.NDArray[np.bool_], mask_leaf: str, env_steps: int) -> None:
    """Checks that each row of masks (B, N) allows an action.

    Args:
        masks: True where an action is allowed.
        mask_leaf: Where they come from.
        env_steps: Environment steps so far.

    Raises:
        ExecutionError: One does not; names its row and the step.
    """
    some = masks.any(axis=-1)
    if not some.all():
        row = int(np.argmin(some))
        raise ExecutionError(
            "no action is allowed",
            where=f"environment {row}, after {env_steps} environment steps",
            received=f"{mask_leaf}={masks[row].astype(int).tolist()}",
            fix="have the environment allow an action, or end the episode there",
        )


class MaskUser:
    """What policies do with masks; see `check_mask_leaf`."""

    mask_leaf: str | None = None

    def _masked(self, values: Any, observations: Any) -> Any:
        """Logits or Q-values (..., N) with `MASKED` for actions that are not allowed in the observations."""
        if self.mask_leaf is None:
            return values
        allowed = observations if has_leaf(observations, Unknown) else flatten_tree(observations)[self.mask_leaf]
        return self._without_forbidden(values, allowed)

    @graph_fn
    def _without_forbidden(self, values: Any, allowed: Any) -> Any:
        allowed = ops.astype(allowed, "bool")
        # a row without any (a final observation, say) stays as it is, so that nothing becomes as low as MASKED
        some = ops.any(allowed, axis=-1, keepdims=True)
        return ops.where(ops.logical_or(allowed, ops.logical_not(some)), values, MASKED)

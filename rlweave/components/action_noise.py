"""Noise on deterministic actions: exploration of DDPG and TD3, and smoothing of TD3's targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.action_leaves import FLOATS, action_leaves, as_space
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Space
from rlweave.tree import flatten_tree


@register("gaussian_noise")
class GaussianNoise(Component):
    """Adds independent normal noise to actions, and clips them to their box.

    Actions and deviations are in the policy's own numbers, of which [-1, 1] is the box where it is bounded on both
    sides: a deviation of 0.1 is a twentieth of the box, whatever its scale.

    Args:
        action_space: The environment's action space, floats only.
        deviation: Standard deviation.
        limit: Noise is clipped to [-limit, limit] before it is added (TD3's targets); None: it is not.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
        SpaceError: See `action_leaves`.
    """

    def __init__(
        self,
        action_space: Space | Mapping[str, Any],
        deviation: float = 0.1,
        limit: float | None = None,
        scope: str = "gaussian-noise",
    ) -> None:
        super().__init__(scope)
        NOT_NEGATIVE.check("deviation", deviation, scope)
        POSITIVE.check("limit", limit, scope, optional=True)
        self.action_space = as_space(action_space)
        self.leaves = {leaf.path: leaf for leaf in action_leaves(self.action_space, scope, FLOATS)}
        self.deviation, self.limit = float(deviation), limit

    @api
    def call(self, actions: Any) -> Any:
        """Noisy actions within their box: nested (..., *shape) both."""
        return self.action_space.unflatten(self._add(flatten_tree(actions)))

    @graph_fn(returns=1)
    def _add(self, actions: dict[str, Any]) -> Any:
        return {path: self._noisy(path, action) for path, action in actions.items()}

    def _noisy(self, path: str, action: Any) -> Any:
        noise = self.deviation * ops.random.normal(action.shape)
        if self.limit is not None:
            noise = ops.clip(noise, -self.limit, self.limit)
        leaf = self.leaves[path]
        return ops.clip(action + noise, leaf.own_lower, leaf.own_upper)

"""Noise on deterministic actions: exploration of DDPG and TD3, and smoothing of TD3's targets."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.action_boundary import own_space
from rlweave.components.action_leaves import FLOATS, action_leaves, as_space
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Space, Tuple
from rlweave.tree import flatten_tree


class ActionNoise(Component):
    """Adds noise to actions, and clips them to their box.

    Actions and deviations are in the policy's own numbers, of which [-1, 1] is the box where it is bounded on both
    sides: a deviation of 0.1 is a twentieth of the box, whatever its scale.

    Args:
        action_space: The environment's action space, floats only.
        deviation: Standard deviation.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
        SpaceError: See `action_leaves`.
    """

    def __init__(self, action_space: Space | Mapping[str, Any], deviation: float, scope: str) -> None:
        super().__init__(scope)
        NOT_NEGATIVE.check("deviation", deviation, scope)
        self.action_space = as_space(action_space)
        leaves = action_leaves(self.action_space, scope, FLOATS)
        self.own_space = own_space(self.action_space, leaves)
        self.leaves = {leaf.path: leaf for leaf in leaves}
        self.deviation = float(deviation)

    @property
    def recurrent_space(self) -> Space:
        """Space of what is kept of the noise between two steps of an environment, without ranks: `Tuple()`, nothing."""
        return Tuple()

    @abstractmethod
    def call(self, actions: Any, state: Any = (), episode_start: Any = None) -> Any:
        """Noisy actions within their box.

        Args:
            actions: Nested floats (B, *shape).
            state: What was kept of the last step, nested (B, ...) as `recurrent_space` says; (): all episodes begin.
            episode_start: Bool (B,): where the state starts anew; None without one.

        Returns:
            Actions, nested (B, *shape), and the state after the step.
        """

    @property
    def keeps_state(self) -> bool:
        """Whether anything is kept between two steps."""
        return bool(self.recurrent_space.flatten())

    def _within(self, path: str, action: Any) -> Any:
        leaf = self.leaves[path]
        return ops.clip(action, leaf.own_lower, leaf.own_upper)


@register("gaussian_noise")
class GaussianNoise(ActionNoise):
    """Adds independent normal noise to actions; see `ActionNoise`.

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
        super().__init__(action_space, deviation, scope)
        POSITIVE.check("limit", limit, scope, optional=True)
        self.limit = limit

    @api
    def call(self, actions: Any, state: Any = (), episode_start: Any = None) -> Any:
        """Noisy actions within their box, and the state that was given; see `ActionNoise.call`."""
        return self.action_space.unflatten(self._add(flatten_tree(actions))), state

    @graph_fn(returns=1)
    def _add(self, actions: dict[str, Any]) -> Any:
        return {path: self._noisy(path, action) for path, action in actions.items()}

    def _noisy(self, path: str, action: Any) -> Any:
        noise = self.deviation * ops.random.normal(action.shape)
        if self.limit is not None:
            noise = ops.clip(noise, -self.limit, self.limit)
        return self._within(path, action + noise)


@register("ornstein_uhlenbeck_noise")
class OrnsteinUhlenbeckNoise(ActionNoise):
    """Adds noise that drifts from step to step within an episode (Uhlenbeck & Ornstein 1930); see `ActionNoise`.

    The process dx = -rate x dt + deviation sqrt(2 rate) dW, exactly, at whole steps: x is 0 before an episode, and
    x_t = exp(-rate) x_{t-1} + deviation sqrt(1 - exp(-2 rate)) n_t with n_t standard normal. So noises k steps apart
    have the correlation exp(-rate k), and their deviation rises to `deviation` within about 1 / rate steps. (DDPG's
    paper steps with Euler's method and gives the size of the single step, theta 0.15 and sigma 0.2: rate 0.163 and
    deviation 0.38 are the same noise.)

    Args:
        action_space: The environment's action space, floats only.
        deviation: Standard deviation far from the beginning of an episode.
        rate: By what the noise returns to 0, per step.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
        SpaceError: See `action_leaves`.
    """

    def __init__(
        self,
        action_space: Space | Mapping[str, Any],
        deviation: float = 0.2,
        rate: float = 0.15,
        scope: str = "ornstein-uhlenbeck-noise",
    ) -> None:
        super().__init__(action_space, deviation, scope)
        POSITIVE.check("rate", rate, scope)
        self.rate = float(rate)
        self._kept = math.exp(-self.rate)
        self._size = self.deviation * math.sqrt(1.0 - self._kept**2)

    @property
    def recurrent_space(self) -> Space:
        """Space of the noise of one environment: the actions'."""
        return self.own_space

    @api
    def call(self, actions: Any, state: Any = (), episode_start: Any = None) -> Any:
        """Noisy actions within their box, and the noise; see `ActionNoise.call`."""
        begins = isinstance(state, tuple) and not state
        flat = self._begin(flatten_tree(actions)) if begins else self._advance(flatten_tree(state), episode_start)
        noise = self.action_space.unflatten(flat)
        return self.action_space.unflatten(self._add(flatten_tree(actions), flatten_tree(noise))), noise

    @graph_fn(differentiable=False, returns=1)
    def _advance(self, before: dict[str, Any], episode_start: Any) -> Any:
        after = {}
        for path, noise in before.items():
            start = ops.reshape(episode_start, (-1, *(1 for _ in noise.shape[1:])))
            after[path] = self._kept * ops.where(start, 0.0, noise) + self._size * ops.random.normal(noise.shape)
        return after

    @graph_fn(differentiable=False, returns=1)
    def _begin(self, actions: dict[str, Any]) -> Any:
        return {path: self._size * ops.random.normal(action.shape) for path, action in actions.items()}

    @graph_fn(returns=1)
    def _add(self, actions: dict[str, Any], noise: dict[str, Any]) -> Any:
        return {path: self._within(path, action + noise[path]) for path, action in actions.items()}


NoiseSpec = float | Mapping[str, Any] | ActionNoise
"""A deviation of `GaussianNoise`, a spec without an action space, or the component."""


def make_noise(noise: NoiseSpec, action_space: Space, scope: str = "noise") -> ActionNoise:
    """Noise on actions of a space.

    Args:
        noise: See `NoiseSpec`.
        action_space: The environment's action space.
        scope: Name within the owner.

    Raises:
        SpecError: A spec of something else.
    """
    if isinstance(noise, ActionNoise):
        return noise
    spec = noise if isinstance(noise, Mapping) else {"type": "gaussian_noise", "deviation": noise}
    made: ActionNoise = ActionNoise.from_spec({**spec, "action_space": action_space, "scope": scope})
    return made

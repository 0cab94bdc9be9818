"""The joint distribution of a nested action, and the tanh-squashed normal distribution of bounded actions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.action_boundary import from_environment, to_environment
from rlweave.components.action_leaves import ANY_KIND, ActionLeaf, action_leaves, as_space
from rlweave.components.distributions import (
    bernoulli_entropy,
    bernoulli_kl,
    bernoulli_log_prob,
    categorical_entropy,
    categorical_kl,
    categorical_log_probs,
    clamped_log_std,
    normal_entropy,
    normal_kl,
    normal_log_prob,
    normal_sample,
)
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.ir import Unknown
from rlweave.spaces import Space
from rlweave.tree import flatten_tree, has_leaf

# Gauss-Hermite quadrature for the mean of f(x) over a standard normal x: the sum of weight * f(node).
_HERMITE_NODES, _HERMITE_WEIGHTS = np.polynomial.hermite.hermgauss(16)
_NODES = (math.sqrt(2.0) * _HERMITE_NODES).astype(np.float32)
_WEIGHTS = (_HERMITE_WEIGHTS / math.sqrt(math.pi)).astype(np.float32)
# Gauss-Legendre quadrature of functions of u >= 0 that decay as exp(-2u): what lies beyond 9 is below 1e-8.
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(24)
_POSITIVE_NODES = (4.5 * (_LEGENDRE_NODES + 1.0)).astype(np.float32)
_POSITIVE_WEIGHTS = (4.5 * _LEGENDRE_WEIGHTS * np.log1p(np.exp(-9.0 * (_LEGENDRE_NODES + 1.0)))).astype(np.float32)
_LARGEST_TANH = 1.0 - 1e-6  # the largest action that is inverted: atanh(1) is infinite


# -- tanh-squashed normal ----------------------------------------------------------------------------------------


def log_tanh_slope(u: Any) -> Any:
    """The log of 1 - tanh(u)^2, exact where tanh(u) rounds to 1: 2 (log 2 - u - softplus(-2u)). Elementwise."""
    return 2.0 * (math.log(2.0) - u - ops.softplus(-2.0 * u))


def squash(u: Any, bounded: Any) -> Any:
    """Brings unbounded numbers into [-1, 1]: tanh(u) where bounded (a bool, or one by dimension), u elsewhere."""
    if bounded is False:
        return u
    return ops.tanh(u) if bounded is True else ops.where(bounded, ops.tanh(u), u)


def unsquash(y: Any, bounded: Any) -> Any:
    """The inverse of `squash`; numbers at (or beyond) -1 and 1 are clipped to just inside."""
    if bounded is False:
        return y
    inside = ops.clip(y, -_LARGEST_TANH, _LARGEST_TANH)
    u = 0.5 * (ops.log1p(inside) - ops.log1p(-inside))
    return u if bounded is True else ops.where(bounded, u, y)


def squashed_log_prob(mean: Any, log_std: Any, u: Any, bounded: Any) -> Any:
    """Log-density of squash(u), elementwise, from the number before tanh."""
    log_prob = normal_log_prob(mean, log_std, u)
    return log_prob if bounded is False else log_prob - _where_bounded(log_tanh_slope(u), bounded)


def squashed_entropy(mean: Any, log_std: Any, bounded: Any) -> Any:
    """Entropy of squash(u), elementwise: H(u) + E[log slope], by quadrature."""
    entropy = normal_entropy(mean, log_std)
    if bounded is False:
        return entropy
    std = ops.broadcast_to(ops.exp(clamped_log_std(log_std)), mean.shape)
    wide = std > 1.0
    # each formula sees harmless numbers where the other one holds
    slope = ops.where(
        wide, _wide_log_slope(mean, ops.where(wide, std, 1.0)), _narrow_log_slope(mean, ops.where(wide, 1.0, std))
    )
    return entropy + _where_bounded(slope, bounded)


def _where_bounded(slope: Any, bounded: Any) -> Any:
    return slope if bounded is True else ops.where(bounded, slope, 0.0)


def _narrow_log_slope(mean: Any, std: Any) -> Any:
    """E[log slope] for standard deviations up to 1, over which it is smooth: 16-point Gauss-Hermite quadrature."""
    u = mean[..., None] + ops.multiply(std[..., None], _NODES)
    return ops.sum(ops.multiply(log_tanh_slope(u), _WEIGHTS), axis=-1)


def _wide_log_slope(mean: Any, std: Any) -> Any:
    """E[log slope] for standard deviations from 1.

    log slope = 2 log 2 - 2 |u| - 2 log(1 + exp(-2 |u|)): E|u| is that of a folded normal distribution, and the last
    term lives near 0, where the density is smooth at this width.
    """
    z = mean / std
    folded = std * math.sqrt(2.0 / math.pi) * ops.exp(-0.5 * z * z) + mean * ops.erf(z * math.sqrt(0.5))
    inverse = 1.0 / std[..., None]
    above = ops.multiply(ops.subtract(_POSITIVE_NODES, mean[..., None]), inverse)
    below = ops.multiply(ops.add(_POSITIVE_NODES, mean[..., None]), inverse)
    density = (ops.exp(-0.5 * above * above) + ops.exp(-0.5 * below * below)) * (inverse / math.sqrt(2.0 * math.pi))
    rest = ops.sum(ops.multiply(density, _POSITIVE_WEIGHTS), axis=-1)
    return 2.0 * math.log(2.0) - 2.0 * folded - 2.0 * rest


# -- one leaf ----------------------------------------------------------------------------------------------------


def leaf_sample(leaf: ActionLeaf, parameters: Any, squashed: bool, noise: Any = None) -> tuple[Any, Any]:
    """A sample of one leaf and its log-probability by component: (..., *shape) both.

    Args:
        leaf: The leaf.
        parameters: Of its distribution.
        squashed: Floats go through tanh.
        noise: Of floats, standard normal numbers (..., *shape); None: drawn here.
    """
    if leaf.kind == "categorical":
        log_probs = categorical_log_probs(parameters)
        actions = ops.random.categorical(log_probs)
        return actions, ops.take_last(log_probs, actions)
    if leaf.kind == "bernoulli":
        actions = ops.random.bernoulli(ops.sigmoid(parameters))
        return actions, bernoulli_log_prob(parameters, actions)
    mean, log_std = parameters["mean"], parameters["log_std"]
    u = normal_sample(mean, log_std, noise)
    if squashed:
        return squash(u, leaf.bounded), squashed_log_prob(mean, log_std, u, leaf.bounded)
    return u, normal_log_prob(mean, log_std, u)


def leaf_mode(leaf: ActionLeaf, location: Any, squashed: bool) -> Any:
    """The likeliest value of one leaf (squashed: of the number before tanh) for its logits, or its mean."""
    if leaf.kind == "categorical":
        return ops.argmax(location, axis=-1)
    if leaf.kind == "bernoulli":
        return location > 0
    return squash(location, leaf.bounded) if squashed else location


def leaf_log_prob(leaf: ActionLeaf, parameters: Any, actions: Any, squashed: bool) -> Any:
    """Log-probability of actions by component: (..., *shape)."""
    if leaf.kind == "categorical":
        return ops.take_last(categorical_log_probs(parameters), actions)
    if leaf.kind == "bernoulli":
        return bernoulli_log_prob(parameters, actions)
    mean, log_std = parameters["mean"], parameters["log_std"]
    if squashed:
        return squashed_log_prob(mean, log_std, unsquash(actions, leaf.bounded), leaf.bounded)
    return normal_log_prob(mean, log_std, actions)


def leaf_entropy(leaf: ActionLeaf, parameters: Any, squashed: bool) -> Any:
    """Entropy by component: (..., *shape)."""
    if leaf.kind == "categorical":
        return categorical_entropy(parameters)
    if leaf.kind == "bernoulli":
        return bernoulli_entropy(parameters)
    if squashed:
        return squashed_entropy(parameters["mean"], parameters["log_std"], leaf.bounded)
    return normal_entropy(parameters["mean"], parameters["log_std"])


def leaf_kl(leaf: ActionLeaf, parameters: Any, others: Any) -> Any:
    """KL(parameters || others) by component; tanh does not change it."""
    if leaf.kind == "categorical":
        return categorical_kl(parameters, others)
    if leaf.kind == "bernoulli":
        return bernoulli_kl(parameters, others)
    return normal_kl(parameters["mean"], parameters["log_std"], others["mean"], others["log_std"])


def sum_components(x: Any, leaf: ActionLeaf) -> Any:
    """Sums over the feature axes of a leaf: (..., *shape) to (...)."""
    n = len(leaf.shape)
    return ops.sum(x, axis=tuple(range(-n, 0))) if n else x


# -- all leaves --------------------------------------------------------------------------------------------------


class ActionDistribution(Component):
    """What distributions of nested actions share: from the policy's own numbers to the environment's, and nesting.

    Args:
        action_space: The environment's action space.
        kinds: Which kinds of leaves it may have, see `action_leaves`.
        scope: Name within the owner.
    """

    def __init__(self, action_space: Space | Mapping[str, Any], kinds: frozenset[str], scope: str) -> None:
        super().__init__(scope)
        self.action_space = as_space(action_space)
        self.leaves = action_leaves(self.action_space, scope, kinds)

    @abstractmethod
    def sample(self, parameters: Any) -> Any:
        """Draws actions, nested (..., *shape), by parameters of the distribution."""

    @abstractmethod
    def mode(self, parameters: Any) -> Any:
        """The likeliest actions, nested (..., *shape)."""

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them, within their bounds always; see `to_environment`.

        Args:
            actions: The policy's own, nested (..., *shape).

        Returns:
            The same nesting: int32, bool, float32.
        """
        return self._nested(self._env_actions(flatten_tree(actions)))

    @api
    def own_actions(self, actions: Any) -> Any:
        """The policy's own numbers for actions of the environment, nested (..., *shape) both."""
        return self._nested(self._own_actions(flatten_tree(actions)))

    @graph_fn(returns=1)
    def _env_actions(self, actions: dict[str, Any]) -> Any:
        return {leaf.path: to_environment(actions[leaf.path], leaf) for leaf in self.leaves}

    @graph_fn(returns=1)
    def _own_actions(self, actions: dict[str, Any]) -> Any:
        return {leaf.path: from_environment(actions[leaf.path], leaf) for leaf in self.leaves}

    def _flat(self, parameters: Any) -> dict[str, Any]:
        """Parameters by path of the leaf they belong to."""
        if isinstance(parameters, Unknown):
            return {leaf.path: parameters for leaf in self.leaves}
        return self.action_space.flatten_value(parameters)

    def _nested(self, flat: Any) -> Any:
        if has_leaf(flat, Unknown) and not isinstance(flat, dict):
            return flat
        return self.action_space.unflatten(flat)


@register("joint")
class Joint(ActionDistribution):
    """The distribution of a whole action: its leaves and their components are independent given the state.

    Parameters are nested like the action space. By leaf: integers have logits (..., *shape, N), N the largest number
    of categories, missing ones masked; booleans have logits (..., *shape); floats have
    `{"mean": (..., *shape), "log_std": (..., *shape)}`.

    Actions here are the policy's own numbers (see `ActionLeaf`): indices from 0 of integers, numbers around 0 of
    floats, [-1, 1] being the box where it is bounded on both sides. Log-probabilities and entropies are those of these
    numbers, before they are clipped and scaled (`env_actions`), so neither bounds nor scale of an environment count in
    them. They are sums over all leaves and components: (...).

    Args:
        action_space: The environment's action space.
        squash: Pass floats that are bounded on both sides through tanh into [-1, 1] (per dimension); otherwise what
            lies beyond is clipped for the environment.
        scope: Name within the owner.

    Raises:
        SpaceError: See `action_leaves`.
    """

    def __init__(self, action_space: Space | Mapping[str, Any], squash: bool = False, scope: str = "joint") -> None:
        super().__init__(action_space, ANY_KIND, scope)
        self.squash = squash

    @api
    def sample(self, parameters: Any) -> Any:
        """Draws actions.

        Args:
            parameters: See above.

        Returns:
            Nested actions, (..., *shape): int32 indices from 0, bool, or float32.
        """
        return self.sample_and_log_prob(parameters)[0]

    @api
    def sample_and_log_prob(self, parameters: Any, noise: Any = None) -> Any:
        """Draws actions and gives their log-probability: nested (..., *shape), and (...).

        For squashed floats the log-probability comes from the number before tanh and is finite always.

        Args:
            parameters: See above.
            noise: By path of each float leaf standard normal numbers, (..., *shape); None: they are drawn here.
        """
        actions, log_prob = self._sample(self._flat(parameters), noise)
        return self._nested(actions), log_prob

    @api
    def mode(self, parameters: Any) -> Any:
        """The likeliest actions, nested (..., *shape). Squashed: what the likeliest number before tanh becomes."""
        return self._nested(self._mode(self._locations(self._flat(parameters))))

    @api
    def mode_and_log_prob(self, parameters: Any) -> Any:
        """The likeliest actions and their log-probability: nested (..., *shape), and (...)."""
        flat = self._flat(parameters)
        actions = self._mode(self._locations(flat))
        return self._nested(actions), self._log_prob(flat, actions)

    @api
    def log_prob(self, parameters: Any, actions: Any) -> Any:
        """Log-probability of nested actions: (...)."""
        return self._log_prob(self._flat(parameters), flatten_tree(actions))

    @api
    def entropy(self, parameters: Any) -> Any:
        """Entropy in nats: (...)."""
        return self._entropy(self._flat(parameters))

    @api
    def log_prob_and_entropy(self, parameters: Any, actions: Any) -> Any:
        """Log-probability of nested actions, and entropy: (...) both."""
        return self.log_prob(parameters, actions), self.entropy(parameters)

    @api
    def kl(self, parameters: Any, others: Any) -> Any:
        """KL(parameters || others) in nats: (...)."""
        return self._kl(self._flat(parameters), self._flat(others))

    # -- numbers -------------------------------------------------------------------------------------------------

    @graph_fn(returns=2)
    def _sample(self, parameters: dict[str, Any], noise: Any) -> Any:
        actions, total = {}, None
        for leaf in self.leaves:
            given = None if noise is None else noise.get(leaf.path)
            actions[leaf.path], log_prob = leaf_sample(leaf, parameters[leaf.path], self.squash, given)
            log_prob = sum_components(log_prob, leaf)
            total = log_prob if total is None else total + log_prob
        return actions, total

    @graph_fn(returns=1)
    def _mode(self, locations: dict[str, Any]) -> Any:
        return {leaf.path: leaf_mode(leaf, locations[leaf.path], self.squash) for leaf in self.leaves}

    @graph_fn(returns=1)
    def _log_prob(self, parameters: dict[str, Any], actions: dict[str, Any]) -> Any:
        total = None
        for leaf in self.leaves:
            log_prob = leaf_log_prob(leaf, parameters[leaf.path], actions[leaf.path], self.squash)
            log_prob = sum_components(log_prob, leaf)
            total = log_prob if total is None else total + log_prob
        return total

    @graph_fn(returns=1)
    def _entropy(self, parameters: dict[str, Any]) -> Any:
        total = None
        for leaf in self.leaves:
            entropy = sum_components(leaf_entropy(leaf, parameters[leaf.path], self.squash), leaf)
            total = entropy if total is None else total + entropy
        return total

    @graph_fn(returns=1)
    def _kl(self, parameters: dict[str, Any], others: dict[str, Any]) -> Any:
        total = None
        for leaf in self.leaves:
            kl = sum_components(leaf_kl(leaf, parameters[leaf.path], others[leaf.path]), leaf)
            total = kl if total is None else total + kl
        return total

    # -- nesting -------------------------------------------------------------------------------------------------

    def _locations(self, flat: dict[str, Any]) -> dict[str, Any]:
        """All that modes depend on, by leaf: logits, and of floats the mean, so that no deviation is computed."""
        floats = (leaf.path for leaf in self.leaves if leaf.kind not in ("categorical", "bernoulli"))
        return flat | {path: flat[path]["mean"] for path in floats if not isinstance(flat[path], Unknown)}

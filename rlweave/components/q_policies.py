"""Policies by Q-values of actions that can be counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.action_boundary import to_environment
from rlweave.components.action_leaves import COUNTABLE, action_leaves, as_space
from rlweave.components.action_masks import check_mask_leaf
from rlweave.components.distributions import MASKED
from rlweave.components.encoders import make_encoder
from rlweave.components.initializers import InitializerSpec
from rlweave.components.layers import Dense
from rlweave.components.network import Network, NetworkSpec
from rlweave.components.policies import HasHeads, arranged
from rlweave.graph import Component, api, graph_fn, register
from rlweave.spaces import Space


@register("q_policy")
class QPolicy(HasHeads, Component):
    """Q-values of every action, and the greedy action.

    Each leaf of the action space has a head; within a leaf each component has Q-values of its own. Booleans count as
    two categories, (False, True). Where dimensions have fewer categories than the widest, the missing ones are masked
    with -1e9 (see `MASKED`): finite, never the largest, and without a gradient.

    Args:
        network: Layers over the encoded observation (see `NetworkSpec`), an `ObservationEncoder`, or `shared(encoder)`.
        action_space: Any nested space of integers with a range and booleans.
        image_network: Layers over images, see `ObservationEncoder`.
        observation_space: The observation space, see `ObservationEncoder`.
        kernel_initializer: For all layers that do not choose one; see `make_initializer`.
        mask_leaf: Path of the leaf of observations that says which actions are allowed (bool, (..., N), for actions of
            which one of N is chosen); the others have the Q-value `MASKED`. None: all are.
        scope: Name within the owner.

    Raises:
        SpaceError: Floats among the actions, integers without a range, or no action.
    """

    def __init__(
        self,
        network: NetworkSpec,
        action_space: Space | Mapping[str, Any],
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        kernel_initializer: InitializerSpec = None,
        mask_leaf: str | None = None,
        scope: str = "policy",
    ) -> None:
        super().__init__(scope)
        self.action_space = as_space(action_space)
        self.leaves = action_leaves(self.action_space, scope, COUNTABLE)
        self.mask_leaf = mask_leaf
        check_mask_leaf(mask_leaf, self.leaves, observation_space, scope)
        self.network = make_encoder(network, image_network, observation_space, kernel_initializer)
        self.heads = self._make_heads(lambda leaf: leaf.size * leaf.categories, kernel_initializer)

    @api
    def q_values(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Q-values of all actions.

        Args:
            observations: Nested, (B, *shape); of recurrent networks also sequences (T, B, *shape).
            recurrent_state: As in `features`.
            episode_start: As in `features`.

        Returns:
            Nested like the action space: (..., *action shape, N), N the largest number of categories of the leaf.
        """
        features, _ = self.features(observations, recurrent_state, episode_start)
        return self.parameters_of(features, observations)

    @api
    def look_ahead_q_values(
        self, observations: Any, next_observations: Any, recurrent_state: Any = (), episode_start: Any = None
    ) -> Any:
        """Q-values of observations, and of those that each step led to; see `look_ahead`.

        Returns:
            As `q_values`, and the same of `next_observations`.
        """
        features, following, _ = self.look_ahead(observations, next_observations, recurrent_state, episode_start)
        return self.parameters_of(features, observations), self.parameters_of(following, next_observations)

    @api
    def parameters_of(self, features: Any, observations: Any) -> Any:
        """Q-values from features (..., F) that the encoder made of the observations, which say what is allowed."""
        return self._masked(self._q_values_of(features), observations)

    def _q_values_of(self, features: Any) -> Any:
        """Q-values from features of the encoder: (..., F) to nested (..., *action shape, N)."""
        flat = {}
        for leaf in self.leaves:
            outputs = self.heads[leaf.path].call(features)
            flat[leaf.path] = self._arranged(outputs, leaf.path) if leaf.shape else outputs
        return self.action_space.unflatten(flat)

    @api
    def greedy(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """The actions with the largest Q-values (the first of equals).

        Args:
            observations: Nested observations, (B, *shape).
            recurrent_state: As in `features`.
            episode_start: As in `features`.

        Returns:
            Nested actions (B, *action shape): int32 indices from 0, and bool.
        """
        return self.greedy_of(self.q_values(observations, recurrent_state, episode_start))

    @api
    def greedy_of(self, q_values: Any) -> Any:
        """The best actions by given Q-values: nested (..., *action shape, N) to nested (..., *action shape)."""
        flat = self.action_space.flatten_value(q_values)
        return self.action_space.unflatten(
            {leaf.path: self._best(flat[leaf.path], leaf.kind == "bernoulli") for leaf in self.leaves}
        )

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them: the lowest value of its range is added to each index."""
        flat = self.action_space.flatten_value(actions)
        shifted = {
            leaf.path: self._to_environment(flat[leaf.path], leaf.path) if leaf.changes else flat[leaf.path]
            for leaf in self.leaves
        }
        return self.action_space.unflatten(shifted)

    @graph_fn
    def _arranged(self, outputs: Any, path: str) -> Any:
        return arranged(outputs, self._leaf(path))

    @graph_fn
    def _best(self, q_values: Any, as_bool: bool) -> Any:
        if as_bool:
            return q_values[..., 1] > q_values[..., 0]
        return ops.argmax(q_values, -1)

    @graph_fn
    def _to_environment(self, actions: Any, path: str) -> Any:
        return to_environment(actions, self._leaf(path))


@register("dueling_policy")
class DuelingPolicy(QPolicy):
    """Dueling Q-values: Q(s, a) = V(s) + A(s, a) - mean over a of A(s, a).

    Source: Wang et al. 2016, "Dueling network architectures for deep RL", equation 9. For an action of several
    components each has advantages (and a mean) of its own, on one common V(s); masked categories are in no mean.

    Args:
        network: See `QPolicy`.
        action_space: See `QPolicy`.
        image_network: See `QPolicy`.
        observation_space: See `QPolicy`.
        value_network: Layers between the encoder and the value, such as `[{"type": "dense", "units": 512, ...}]`.
        advantage_network: Layers between the encoder and the advantages.
        kernel_initializer: See `QPolicy`.
        mask_leaf: See `QPolicy`; the mean is over all actions that exist, allowed or not.
        scope: Name within the owner.
    """

    def __init__(
        self,
        network: NetworkSpec,
        action_space: Space | Mapping[str, Any],
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        value_network: NetworkSpec = None,
        advantage_network: NetworkSpec = None,
        kernel_initializer: InitializerSpec = None,
        mask_leaf: str | None = None,
        scope: str = "policy",
    ) -> None:
        super().__init__(network, action_space, image_network, observation_space, kernel_initializer, mask_leaf, scope)
        self.value_network = Network(value_network, kernel_initializer, scope="value-network")
        self.advantage_network = Network(advantage_network, kernel_initializer, scope="advantage-network")
        self.value_head = Dense(1, kernel_initializer=kernel_initializer, scope="value-head")

    def _q_values_of(self, features: Any) -> Any:
        """Q-values from features of the encoder: (..., F) to nested (..., *action shape, N)."""
        value = self.value_head.call(self.value_network.call(features)[0])
        features, _ = self.advantage_network.call(features)
        return self.action_space.unflatten(
            {leaf.path: self._combined(value, self.heads[leaf.path].call(features), leaf.path) for leaf in self.leaves}
        )

    @graph_fn
    def _combined(self, value: Any, advantages: Any, path: str) -> Any:
        leaf = self._leaf(path)
        if leaf.shape:
            advantages = ops.reshape(advantages, (*advantages.shape[:-1], *leaf.shape, leaf.categories))
            value = ops.reshape(value, (*value.shape, *(1 for _ in leaf.shape)))
        return dueling(value, advantages, leaf.allowed, leaf.counts)


def dueling(value: Any, advantages: Any, allowed: Any = None, counts: Any = None) -> Any:
    """V + A - mean(A) (inside a graph function).

    Args:
        value: (..., 1).
        advantages: (..., N).
        allowed: bool, broadcasts to (..., N): categories that exist; None for all.
        counts: float32, broadcasts to (..., 1): how many exist.

    Returns:
        (..., N), `MASKED` where not allowed.
    """
    if allowed is None:
        return value + (advantages - ops.mean(advantages, axis=-1, keepdims=True))
    total = ops.sum(ops.where(allowed, advantages, 0.0), axis=-1, keepdims=True)
    return ops.where(allowed, value + ops.subtract(advantages, ops.divide(total, counts)), MASKED)

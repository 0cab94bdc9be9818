"""State values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.components.initializers import orthogonal_spec
from rlweave.components.layers import Dense
from rlweave.components.network import NetworkSpec
from rlweave.components.policies import hidden_initializer
from rlweave.components.trunks import TrunkUser, make_trunk
from rlweave.graph import Component, api, graph_fn, register
from rlweave.spaces import Space


@register("value_function")
class ValueFunction(TrunkUser, Component):
    """The value V(s) of observations of any space.

    Args:
        network: Layers over the encoded observation (see `NetworkSpec`), an `ObservationEncoder`, or `shared(encoder)`.
        image_network: Layers over images, see `ObservationEncoder`.
        observation_space: The observation space, see `ObservationEncoder`.
        initializer: "orthogonal": kernels of hidden layers are orthogonal with gain sqrt(2), that of the head with
            gain 1. None: each layer's own default.
        scope: Name within the owner.
    """

    def __init__(
        self,
        network: NetworkSpec,
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        initializer: str | None = None,
        scope: str = "value-function",
    ) -> None:
        super().__init__(scope)
        self.network = make_trunk(network, image_network, observation_space, hidden_initializer(initializer))
        self.head = Dense(1, kernel_initializer=None if initializer is None else orthogonal_spec(1.0), scope="head")

    @api
    def call(self, observations: Any) -> Any:
        """Values of observations: nested (B, *shape) to (B,), or (T, B, *shape) to (T, B)."""
        return self.of_features(self.network.call(observations))

    def shares_trunk_of(self, other: Component) -> bool:
        """Whether features of the other's trunk are those of its own."""
        return self.network is getattr(other, "network", None)

    @api
    def of_features(self, features: Any) -> Any:
        """Values from features of the trunk: (..., F) to (...)."""
        return self._without_axis(self.head.call(features))

    @api
    def recurrent_values(self, observations: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """As `call`, by a recurrent network, over sequences or a single step.

        Args:
            observations: Nested observations, (T, B, *shape) or (B, *shape).
            recurrent_state: Before the first step, nested (B, ...).
            episode_start: Bool (T, B) or (B,).

        Returns:
            (T, B) or (B,), and the recurrent state after the last step.
        """
        features, after = self.recur(observations, recurrent_state, episode_start)
        return self.of_features(features), after

    @api
    def look_ahead_values(
        self, observations: Any, next_observations: Any, recurrent_state: Any, episode_start: Any
    ) -> Any:
        """Values along sequences, and of the observations that each step led to; see `look_ahead`.

        Args:
            observations: Nested observations, (T, B, *shape).
            next_observations: The true next observations, the final ones where an episode ended, (T, B, *shape).
            recurrent_state: Before the first step, nested (B, ...).
            episode_start: Bool (T, B), of `observations`.

        Returns:
            (T, B), and (T, B) of `next_observations`, by the state after each step.
        """
        features, following, _ = self.look_ahead(observations, next_observations, recurrent_state, episode_start)
        return self.of_features(features), self.of_features(following)

    @graph_fn
    def _without_axis(self, values: Any) -> Any:
        return values[..., 0]

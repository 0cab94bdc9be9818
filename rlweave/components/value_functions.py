"""State values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.components.encoders import HasEncoder, make_encoder
from rlweave.components.initializers import orthogonal_spec
from rlweave.components.layers import Dense
from rlweave.components.network import NetworkSpec
from rlweave.components.policies import hidden_initializer
from rlweave.graph import Component, api, graph_fn, register
from rlweave.spaces import Space


@register("value_function")
class ValueFunction(HasEncoder, Component):
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
        self.network = make_encoder(network, image_network, observation_space, hidden_initializer(initializer))
        self.head = Dense(1, kernel_initializer=None if initializer is None else orthogonal_spec(1.0), scope="head")

    @api
    def call(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Values of observations.

        Args:
            observations: Nested, (..., *shape); of recurrent networks sequences (T, B, *shape) or steps (B, *shape).
            recurrent_state: As in `features`.
            episode_start: As in `features`.

        Returns:
            (...).
        """
        features, _ = self.features(observations, recurrent_state, episode_start)
        return self.of_features(features)

    @api
    def look_ahead_values(
        self, observations: Any, next_observations: Any, recurrent_state: Any = (), episode_start: Any = None
    ) -> Any:
        """Values of observations, and of those that each step led to; see `look_ahead`.

        Returns:
            (...), and (...) of `next_observations`, by the state after each step.
        """
        features, following, _ = self.look_ahead(observations, next_observations, recurrent_state, episode_start)
        return self.of_features(features), self.of_features(following)

    def shares_encoder_of(self, other: Component) -> bool:
        """Whether features of the other's encoder are those of its own."""
        return self.network is getattr(other, "network", None)

    @api
    def of_features(self, features: Any) -> Any:
        """Values from features of the encoder: (..., F) to (...)."""
        return self._without_axis(self.head.call(features))

    @graph_fn
    def _without_axis(self, values: Any) -> Any:
        return values[..., 0]

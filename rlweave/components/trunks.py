"""Trunks: what turns observations into the features of policies and value functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.components.encoders import ObservationEncoder
from rlweave.components.initializers import InitializerSpec
from rlweave.components.network import NetworkSpec, carries_state
from rlweave.errors import SpecError
from rlweave.graph import Component, api
from rlweave.graph.component import api_methods
from rlweave.graph.composition import Shared
from rlweave.spaces import Space


def make_trunk(
    network: NetworkSpec,
    image_network: NetworkSpec,
    observation_space: Space | Mapping[str, Any] | None,
    kernel_initializer: InitializerSpec,
) -> Any:
    """What turns observations into features for a policy or a value function.

    A component (or `shared(component)`) that encodes observations itself (an `ObservationEncoder`, or anything with the
    attribute `encodes_observations = True`) is taken as it is; everything else becomes the network of one.

    Raises:
        SpecError: An image network or state space for a trunk that is finished.
    """
    component = network.component if isinstance(network, Shared) else network
    if isinstance(component, Component) and getattr(component, "encodes_observations", False):
        if image_network is not None or observation_space is not None:
            raise SpecError(
                "image_network and observation_space belong to the trunk",
                where=component.path,
                received=f"a {type(component).__name__} as network",
                fix="give them to the trunk's own constructor",
            )
        return network
    return ObservationEncoder(network, image_network, observation_space, kernel_initializer, scope="network")


class TrunkUser:
    """The recurrent side of components with a trunk as `network`: their features come with a state.

    What stands here is for recurrent networks only, and feed-forward methods (`call`, `act`, `q_values`, ...) are for
    feed-forward networks only.
    """

    network: Any

    @property
    def is_recurrent(self) -> bool:
        """Whether the trunk carries a state from step to step."""
        return carries_state(self.network)

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks."""
        space: Space = self.network.recurrent_space
        return space

    def offers(self, method: str) -> bool:
        """What takes observations takes a recurrent state as well, or does not, as the trunk is."""
        parameters = api_methods(type(self))[method].parameters
        if method == "initial_state" or "recurrent_state" in parameters:
            return self.is_recurrent
        return "observations" not in parameters or not self.is_recurrent

    @api(static=("batch_size",))
    def initial_state(self, batch_size: int) -> Any:
        """The recurrent state at the start of an episode, nested (B, ...).

        Args:
            batch_size: Static.
        """
        return self.network.initial_state(batch_size=batch_size)

    @api
    def recur(self, observations: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """Features of observations, in sequences or single steps.

        Args:
            observations: Nested observations, (T, B, *shape) or (B, *shape).
            recurrent_state: Before the first step, nested (B, ...) as `recurrent_space` says.
            episode_start: Bool (T, B) or (B,): the observation is the first of its episode.

        Returns:
            (T, B, F) or (B, F), and the recurrent state after the last step.
        """
        return self.network.recur(observations, recurrent_state, episode_start)

    @api
    def look_ahead(self, observations: Any, next_observations: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """Features of the observations of sequences, and of those that each step led to.

        Args:
            observations: Nested observations, (T, B, *shape).
            next_observations: The true next observations, the final ones where an episode ended, (T, B, *shape).
            recurrent_state: Before the first step.
            episode_start: Bool (T, B), of `observations`.

        Returns:
            (T, B, F), (T, B, F) by the state after each step, and the recurrent state after the last step.
        """
        return self.network.look_ahead(observations, next_observations, recurrent_state, episode_start)

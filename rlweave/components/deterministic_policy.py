"""Deterministic policies for actions that are numbers, which explore by noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.components.action_distribution import ActionDistribution, squash
from rlweave.components.action_leaves import FLOATS
from rlweave.components.action_noise import NoiseSpec, make_noise
from rlweave.components.encoders import make_encoder
from rlweave.components.network import NetworkSpec
from rlweave.components.policies import ActsByDistribution
from rlweave.graph import Component, api, graph_fn, register
from rlweave.spaces import Space


@register("noisy_action")
class NoisyAction(ActionDistribution):
    """One action for each state, and noise around it for exploration.

    Parameters are nested like the action space, `{"mean": (..., *shape)}` each: unbounded numbers, which tanh brings
    into [-1, 1] where the box is bounded on both sides.

    Args:
        action_space: The environment's action space, floats only.
        noise: See `make_noise`.
        scope: Name within the owner.

    Raises:
        SpaceError: See `action_leaves`.
    """

    def __init__(
        self, action_space: Space | Mapping[str, Any], noise: NoiseSpec = 0.1, scope: str = "distribution"
    ) -> None:
        super().__init__(action_space, FLOATS, scope)
        self.noise = make_noise(noise, self.action_space)

    @api
    def mode(self, parameters: Any) -> Any:
        """The actions without noise, nested (..., *shape)."""
        return self._nested(self._mode(self._flat(parameters)))

    @api
    def sample(self, parameters: Any) -> Any:
        """The actions with noise as at the beginning of episodes, nested (B, *shape)."""
        return self.explore(parameters)[0]

    @api
    def explore(self, parameters: Any, noise_state: Any = (), episode_start: Any = None) -> Any:
        """The actions with noise, nested (B, *shape), and the state of the noise; see `ActionNoise.call`."""
        return self.noise.call(self.mode(parameters), noise_state, episode_start)

    @graph_fn(returns=1)
    def _mode(self, parameters: dict[str, Any]) -> Any:
        return {leaf.path: squash(parameters[leaf.path]["mean"], leaf.bounded) for leaf in self.leaves}


@register("deterministic_policy")
class DeterministicPolicy(ActsByDistribution, Component):
    """A policy without randomness of its own: an encoder, and for each leaf of the action space a head.

    Args:
        network: Layers over the encoded observation, see `NetworkSpec`.
        action_space: Any nested space of floats.
        image_network: Layers over images, see `ObservationEncoder`.
        observation_space: The observation space, see `ObservationEncoder`.
        noise: What it explores with, see `make_noise`.
        scope: Name within the owner.

    Raises:
        SpaceError: An action that is no float.
    """

    def __init__(
        self,
        network: NetworkSpec,
        action_space: Space | Mapping[str, Any],
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        noise: NoiseSpec = 0.1,
        scope: str = "policy",
    ) -> None:
        super().__init__(scope)
        self.network = make_encoder(network, image_network, observation_space, None)
        self.distribution = NoisyAction(action_space, noise)
        self.action_space, self.leaves = self.distribution.action_space, self.distribution.leaves
        self.heads = self._make_heads(lambda leaf: leaf.size)

    @api
    def parameters_of(self, features: Any, observations: Any) -> Any:
        """Parameters of `NoisyAction`, from features (..., F) that the encoder made of the observations."""
        flat = {path: {"mean": self._shaped(head.call(features), path)} for path, head in self.heads.items()}
        return self.action_space.unflatten(flat)

    @api
    def explore(self, observations: Any, noise_state: Any = (), episode_start: Any = None) -> Any:
        """Actions with noise, nested (B, *shape), and the state of the noise; see `ActionNoise.call`."""
        return self.distribution.explore(self.parameters(observations), noise_state, episode_start)

"""Action values of actions that are numbers: one or several Q(s, a) as one stack of layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.encoders import ObservationEncoder
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.components.layers import Dense, apply_activation, checked_activation, float_features
from rlweave.components.network import NetworkSpec, make_layers
from rlweave.errors import SpecError
from rlweave.graph import Component, api, graph_fn, register, to_spec
from rlweave.graph.variable import INITIALIZERS, Initializer
from rlweave.settings.ranges import AT_LEAST_ONE
from rlweave.spaces import Space
from rlweave.tree import flatten_tree


@register("stacked_dense")
class StackedDense(Component):
    """Dense layers of equal size side by side, each with weights of its own: one product of matrices for all.

    Args:
        count: How many.
        units: Outputs of each.
        activation: Name in `ACTIVATIONS`, or None.
        kernel_initializer: As in `Dense`; drawn for each anew.
        scope: Name within the owner.

    Raises:
        SpecError: An unknown activation or initializer; names the nearest right one.
    """

    def __init__(
        self,
        count: int,
        units: int,
        activation: str | None = None,
        kernel_initializer: InitializerSpec = None,
        scope: str = "stacked-dense",
    ) -> None:
        super().__init__(scope)
        AT_LEAST_ONE.check("count", count, scope)
        AT_LEAST_ONE.check("units", units, scope)
        self.count, self.units, self.kernel_initializer = count, units, kernel_initializer
        self.activation, _ = checked_activation(activation, None, scope)
        make_initializer(kernel_initializer)  # errors belong to the line that makes the layer

    def create_variables(self, inputs: Any) -> None:
        """Kernels (count, F, units) and biases (count, 1, units)."""
        space = float_features(inputs, self.path)
        initializer = make_initializer(self.kernel_initializer, self.activation)
        self.kernel = self.variable("kernel", (self.count, space.shape[-1], self.units), each(initializer))
        self.bias = self.variable("bias", (self.count, 1, self.units), 0.0)

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Applies the layers.

        Args:
            inputs: Floats, (B, F) for all layers, or (B, count, F) for each its own.

        Returns:
            (B, count, units).
        """
        shared = len(inputs.shape) == 2
        rows = inputs if shared else ops.permute_dims(inputs, (1, 0, 2))
        outputs = ops.add(ops.matmul(rows, self.kernel.value), self.bias.value)
        return ops.permute_dims(apply_activation(outputs, self.activation, {}), (1, 0, 2))


def each(initializer: Initializer) -> Initializer:
    """An initializer of stacked arrays (count, *shape): each of them drawn by itself, as its fan-in has it."""
    if not isinstance(initializer, str) and not callable(initializer):
        return initializer
    draw = INITIALIZERS[initializer] if isinstance(initializer, str) else initializer

    def initialize(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.stack([draw(rng, shape[1:]) for _ in range(shape[0])])

    return initialize


@register("critics")
class Critics(Component):
    """Action values Q(s, a) of floating-point actions; several critics (twins) are one stack of layers.

    Observations are encoded once (images by one `image_network` for all critics); each critic has dense layers of its
    own over these features and the action.

    Args:
        network: Dense layers of each critic, see `NetworkSpec`.
        count: How many critics.
        image_network: Layers over images, see `ObservationEncoder`.
        observation_space: The observation space, see `ObservationEncoder`.
        scope: Name within the owner.

    Raises:
        SpecError: A layer that is not dense.
    """

    def __init__(
        self,
        network: NetworkSpec,
        count: int = 2,
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        scope: str = "critics",
    ) -> None:
        super().__init__(scope)
        self.count = count
        self.encoder = ObservationEncoder(None, image_network, observation_space, scope="encoder")
        self.layers = [_stacked(layer, count, number, scope) for number, layer in enumerate(make_layers(network))]
        self.head = StackedDense(count, 1, scope="head")

    @api
    def call(self, observations: Any, actions: Any) -> Any:
        """Values by each critic.

        Args:
            observations: Nested observations, (B, *shape).
            actions: The policy's own actions, nested floats (B, *shape).

        Returns:
            (B, count).
        """
        features, _ = self.encoder.call(observations)
        x = self._join(features, flatten_tree(actions))
        for layer in self.layers:
            x = layer.call(x)
        return self._values(self.head.call(x))

    @graph_fn
    def _join(self, features: Any, actions: dict[str, Any]) -> Any:
        rows = features.shape[0]  # may be 0, of which no other length can be inferred
        flat = [ops.reshape(action, (rows, math.prod(action.shape[1:]))) for action in actions.values()]
        return ops.concat([features, *flat], axis=-1)

    @graph_fn
    def _values(self, outputs: Any) -> Any:
        return outputs[..., 0]


def _stacked(layer: Any, count: int, number: int, where: str) -> StackedDense:
    """A layer of each critic side by side, for one layer.

    Raises:
        SpecError: It is not dense.
    """
    if type(layer) is not Dense or layer.activation_parameters or not layer.use_bias or layer.bias_initializer != 0:
        raise SpecError(
            "critics have dense layers of units, activation and kernel_initializer",
            where=where,
            received=repr(to_spec(layer) if isinstance(layer, Component) else layer)[:120],
            fix='{"type": "dense", "units": 256, "activation": "relu"}; layers over images go into image_network',
        )
    return StackedDense(count, layer.units, layer.activation, layer.kernel_initializer, scope=f"layer-{number}")

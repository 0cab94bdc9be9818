"""Networks: layers one after another, from specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave.components.initializers import InitializerSpec
from rlweave.errors import SpecError
from rlweave.graph import Component, api, register
from rlweave.graph.component import Shared

LayerSpec = Component | Shared | Mapping[str, Any] | str
"""A component with an API method `call`, `shared(component)`, a spec of one, or a registered name."""

NetworkSpec = LayerSpec | Sequence[LayerSpec] | None
"""A list of layers, or a single one; None has no layer and hands its input on."""


def make_layers(layers: NetworkSpec, kernel_initializer: InitializerSpec = None) -> list[Any]:
    """Components (or shared ones) from specs of layers; the specs are not changed.

    Args:
        layers: See `NetworkSpec`.
        kernel_initializer: For those layers that have one and do not choose it themselves; shared ones stay.

    Raises:
        SpecError: Something that is no layer, or a wrong spec.
    """
    if layers is None:
        return []
    if isinstance(layers, Component | Shared | Mapping | str):
        layers = [layers]
    if not isinstance(layers, Sequence):
        raise SpecError(
            "a network is a list of layers",
            received=repr(layers)[:120],
            fix='[{"type": "dense", "units": 64, "activation": "relu"}, ...]',
        )
    made = []
    for layer in layers:
        if isinstance(layer, str):
            layer = {"type": layer}
        if isinstance(layer, Mapping):
            layer = dict(layer)
        component = layer if isinstance(layer, Shared) else Component.from_spec(layer)
        inner = component.component if isinstance(component, Shared) else component
        if not hasattr(type(inner), "call"):
            raise SpecError(
                f"{type(inner).__name__} is no layer",
                received=repr(layer)[:120],
                fix="a layer has an API method or graph function `call(self, inputs)`",
            )
        chosen = getattr(component, "kernel_initializer", "none")  # a shared layer has its owner's
        if kernel_initializer is not None and chosen is None and isinstance(component, Component):
            component.kernel_initializer = kernel_initializer
        made.append(component)
    return made


def mlp(
    units: Sequence[int], activation: str = "tanh", kernel_initializer: InitializerSpec = None
) -> list[dict[str, Any]]:
    """Specs of dense layers of the given sizes, all with one activation.

    >>> mlp([64], "relu")
    [{'type': 'dense', 'units': 64, 'activation': 'relu'}]
    """
    chosen = {} if kernel_initializer is None else {"kernel_initializer": kernel_initializer}
    return [{"type": "dense", "units": int(size), "activation": activation, **chosen} for size in units]


def nature_cnn(units: int = 512) -> list[dict[str, Any]]:
    """Specs of the convolutional network of Mnih et al. 2015, "Human-level control through deep RL" (Nature 518).

    Args:
        units: Size of the dense layer at the end.
    """
    sizes = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    layers: list[dict[str, Any]] = [
        {"type": "conv2d", "filters": filters, "kernel_size": kernel, "stride": stride, "activation": "relu"}
        for filters, kernel, stride in sizes
    ]
    return [*layers, {"type": "flatten"}, {"type": "dense", "units": units, "activation": "relu"}]


@register("network")
class Network(Component):
    """Layers one after another.

    Args:
        layers: Components with an API method `call`, or their specs; None or an empty list hands the input on.
        kernel_initializer: For layers that do not choose one themselves; see `make_initializer`.
        scope: Name within the owner.

    Example:
        >>> network = Network([{"type": "dense", "units": 64, "activation": "relu"}, {"type": "dense", "units": 2}])
        >>> [layer.units for layer in network.layers]
        [64, 2]
    """

    def __init__(
        self, layers: NetworkSpec = None, kernel_initializer: InitializerSpec = None, scope: str = "network"
    ) -> None:
        super().__init__(scope)
        self.layers: list[Any] = make_layers(layers, kernel_initializer)

    @api
    def call(self, inputs: Any) -> Any:
        """Applies all layers in order.

        Args:
            inputs: What the first layer takes, usually (..., F).

        Returns:
            What the last layer gives, usually (..., units).
        """
        for layer in self.layers:
            inputs = layer.call(inputs)
        return inputs

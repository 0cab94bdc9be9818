"""Networks: layers one after another, from specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave.components.initializers import InitializerSpec
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, register
from rlweave.graph.composition import Shared
from rlweave.spaces import Tuple

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
        if getattr(component, "units", None) == 0:
            raise SpecError("a layer without units hands nothing on", received=repr(layer)[:120], fix="at least 1 unit")
        inner = component.component if isinstance(component, Shared) else component
        if not hasattr(type(inner), "call"):
            raise SpecError(
                f"{type(inner).__name__} is no layer",
                received=repr(layer)[:120],
                fix="a layer has an API method or graph function `call(self, inputs)`",
            )
        chosen = getattr(component, "kernel_initializer", "none")  # a shared layer has its owner's
        # what suits relu and tanh layers is not what suits gates
        if carries_state(inner):
            chosen = "its own"
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

    @property
    def recurrent_layers(self) -> list[Any]:
        """The layers that carry a state from step to step, in order; networks in it may be such layers."""
        return [layer for layer in self.layers if carries_state(layer)]

    @property
    def is_recurrent(self) -> bool:
        """Whether a layer carries a state from step to step."""
        return bool(self.recurrent_layers)

    @property
    def recurrent_space(self) -> Tuple:
        """Space of the state of one sequence, without ranks: a tuple with an entry per recurrent layer, often none."""
        return Tuple(*(layer.recurrent_space for layer in self.recurrent_layers))

    def offers(self, method: str) -> bool:
        """What is about a state alone is built by itself only where there is one."""
        return self.is_recurrent or method not in ("look_ahead", "initial_state")

    def encoded(self, inputs: Any) -> Any:
        """What the first layer gets of the inputs: here the inputs themselves."""
        return inputs

    @api(static=("batch_size",))
    def initial_state(self, batch_size: int) -> Any:
        """The recurrent state at the start of an episode, nested (B, ...) as `recurrent_space` says.

        Args:
            batch_size: Static.
        """
        return tuple(layer.initial_state(batch_size=batch_size) for layer in self.recurrent_layers)

    @api
    def call(self, inputs: Any, state: Any = (), episode_start: Any = None) -> Any:
        """Applies all layers in order, to sequences or to a single step.

        Args:
            inputs: What the first layer takes, usually (..., F); with recurrent layers (T, B, ...) or (B, ...).
            state: Recurrent state before the first step, nested (B, ...) as `recurrent_space` says.
            episode_start: Bool (T, B) or (B,): where the state starts anew before the step; None without a state.

        Returns:
            What the last layer gives, usually (..., units), and the state after the last step: () without
            recurrent layers.

        Raises:
            BuildError: A layer is recurrent, and there is no state.
        """
        self._require_state(state, "call")
        outputs = self.encoded(inputs)
        states: list[Any] = []
        for layer in self.layers:
            if carries_state(layer):
                outputs, after = layer.call(outputs, state[len(states)], episode_start)
                states.append(after)
            else:
                outputs = outputs_of(layer, outputs)
        return outputs, tuple(states)

    @api
    def look_ahead(self, inputs: Any, next_inputs: Any, state: Any = (), episode_start: Any = None) -> Any:
        """As `call` over sequences, and from each step one more that is not gone on from.

        See `RecurrentLayer.look_ahead`.

        Args:
            inputs: (T, B, ...).
            next_inputs: What followed each step within its episode, (T, B, ...).
            state: Recurrent state before the first step.
            episode_start: Bool (T, B), of `inputs`; None without a state.

        Returns:
            Outputs (T, B, units), those of the additional steps, and the state after the last step.
        """
        self._require_state(state, "look_ahead")
        outputs, following = self.encoded(inputs), self.encoded(next_inputs)
        states: list[Any] = []
        for layer in self.layers:
            if carries_state(layer):
                outputs, following, after = layer.look_ahead(outputs, following, state[len(states)], episode_start)
                states.append(after)
            else:
                outputs, following = outputs_of(layer, outputs), outputs_of(layer, following)
        return outputs, following, tuple(states)

    def _require_state(self, state: Any, method: str) -> None:
        if self.is_recurrent and isinstance(state, tuple) and not state:
            raise BuildError(
                "a recurrent network was called without a state",
                where=f"{self.path}.{method}",
                received=f"recurrent layers: {', '.join(layer.scope for layer in self.recurrent_layers)}",
                fix=f"call {method}(..., state, episode_start); it returns the state after the last step",
            )


def outputs_of(layer: Any, inputs: Any) -> Any:
    """What a layer without a state makes of its inputs; it may be a network itself."""
    return layer.call(inputs)[0] if isinstance(layer, Network) else layer.call(inputs)


def carries_state(layer: Any) -> bool:
    """Whether a layer or network carries a state from step to step.

    Its class is asked first: a component that lacks an attribute says what it has instead, which takes a while.
    """
    return hasattr(type(layer), "is_recurrent") and bool(layer.is_recurrent)


def is_recurrent(network: NetworkSpec) -> bool:
    """Whether a network of these layers would carry a state from step to step."""
    layers = [layer.component if isinstance(layer, Shared) else layer for layer in make_layers(network)]
    return any(carries_state(layer) for layer in layers)

"""Layers without structure of their own: dense, activation, flatten, concat, layer normalization."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.initializers import InitializerSpec, make_initializer
from rlweave.errors import BuildError, SpecError, nearest
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.ir import Value
from rlweave.settings.ranges import POSITIVE
from rlweave.spaces import Box, Dict, Tuple

# fmt: off
ACTIVATIONS = (
    "elu", "gelu", "leaky_relu", "log_softmax", "relu", "sigmoid", "silu", "softmax", "softplus", "tanh",
)
# fmt: on
"""Names of activations; each is the operator of that name."""

#: Activations that `ops.linear` and `ops.conv2d` apply themselves.
FUSED = (None, "relu", "tanh")

_OTHER_NAMES = {"linear": None, "identity": None, "swish": "silu"}


def checked_activation(
    name: str | None, parameters: Mapping[str, Any] | None, where: str
) -> tuple[str | None, dict[str, Any]]:
    """The operator that a name of an activation stands for, and its parameters.

    Args:
        name: A name in `ACTIVATIONS`; None, "linear" and "identity" stand for none, "swish" for "silu".
        parameters: Parameters of the operator by name, such as `{"negative_slope": 0.2}`.
        where: The layer, for errors.

    Raises:
        SpecError: An unknown name or parameter; names the nearest right one.
    """
    given = dict(parameters or {})
    if name is None or name in _OTHER_NAMES:
        name = _OTHER_NAMES.get(name) if name is not None else None
    elif name not in ACTIVATIONS:
        raise SpecError(
            "unknown activation",
            where=where,
            received=repr(name),
            fix=nearest(str(name), [*ACTIVATIONS, *_OTHER_NAMES]),
        )
    known = list(inspect.signature(getattr(ops, name)).parameters)[1:] if name else []
    for parameter in given:
        if parameter not in known:
            raise SpecError(
                f"unknown parameter {parameter!r} of the activation {name!r}",
                where=where,
                received=repr(given),
                fix=nearest(parameter, known) if known else "it takes none",
            )
    return name, given


def float_features(space: Any, where: str) -> Box:
    """Checks that the input of a layer is one array of floats, and returns its space.

    Raises:
        BuildError: It is nested, or holds integers or booleans.
    """
    if isinstance(space, Dict | Tuple) or not isinstance(space, Box):
        raise BuildError(
            "a layer takes one array, not a container",
            where=where,
            received=repr(space),
            fix="put an ObservationEncoder in front: it turns any space into one vector of features",
        )
    if not space.dtype.startswith("float"):
        raise BuildError(
            f"a layer takes floats, not {space.dtype}",
            where=where,
            received=repr(space),
            fix="put an ObservationEncoder in front: it scales bytes and encodes integers and booleans",
        )
    return space


@register("dense")
class Dense(Component):
    """A fully connected layer: `activation(inputs @ kernel + bias)`.

    Args:
        units: Number of outputs.
        activation: Name in `ACTIVATIONS`, or None.
        kernel_initializer: See `make_initializer`. None: variance 2 / fan_in in front of relu and its kind,
            1 / fan_in otherwise.
        bias_initializer: Likewise for the bias.
        use_bias: False leaves the bias out.
        activation_parameters: Parameters of the activation by name, such as `{"negative_slope": 0.2}`.
        scope: Name within the owner.

    Raises:
        SpecError: An unknown activation, parameter or initializer; names the nearest right one.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        kernel_initializer: InitializerSpec = None,
        bias_initializer: InitializerSpec = 0.0,
        use_bias: bool = True,
        activation_parameters: Mapping[str, Any] | None = None,
        scope: str = "dense",
    ) -> None:
        super().__init__(scope)
        if isinstance(units, bool) or not isinstance(units, int) or units < 0:
            raise SpecError("a dense layer needs a whole number of units", where=scope, received=f"units={units!r}")
        self.units, self.use_bias = units, use_bias
        self.activation, self.activation_parameters = checked_activation(activation, activation_parameters, scope)
        make_initializer(kernel_initializer)  # errors belong to the line that makes the layer
        make_initializer(bias_initializer)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer

    def create_variables(self, inputs: Any) -> None:
        """Kernel (F, units) and bias (units,)."""
        space = float_features(inputs, self.path)
        if not space.shape:
            raise BuildError(
                "a dense layer needs a feature axis",
                where=self.path,
                received=repr(space),
                fix="give the space a shape, such as FloatBox(shape=(1,)), or put an ObservationEncoder in front",
            )
        self.kernel = self.variable(
            "kernel", (space.shape[-1], self.units), make_initializer(self.kernel_initializer, self.activation)
        )
        if self.use_bias:
            self.bias = self.variable("bias", (self.units,), make_initializer(self.bias_initializer))

    @api
    def call(self, inputs: Any) -> Any:
        """Applies the layer to the last axis.

        Args:
            inputs: Floats, (..., F).

        Returns:
            (..., units).
        """
        # chosen here and not at every call: acting in NumPy is a matter of single microseconds
        if not self.use_bias or self.activation not in FUSED:
            return self._general(inputs)
        return self._call(inputs, isinstance(inputs, Value) and len(inputs.space.axes) == 2)

    @graph_fn
    def _call(self, inputs: Any, rows: bool) -> Any:
        return ops.linear(inputs, self.kernel.value, self.bias.value, self.activation, rows)

    @graph_fn(returns=1)
    def _general(self, inputs: Any) -> Any:
        outputs = ops.linear(inputs, self.kernel.value, self.bias.value if self.use_bias else None)
        return apply_activation(outputs, self.activation, self.activation_parameters)


def apply_activation(x: Any, name: str | None, parameters: Mapping[str, Any]) -> Any:
    """Applies an activation by name, as `checked_activation` gives it (inside a graph function)."""
    return x if name is None else getattr(ops, name)(x, **parameters)


@register("activation")
class Activation(Component):
    """An activation as a layer.

    Args:
        activation: Name in `ACTIVATIONS`.
        activation_parameters: Its parameters by name.
        scope: Name within the owner.
    """

    def __init__(
        self, activation: str, activation_parameters: Mapping[str, Any] | None = None, scope: str = "activation"
    ) -> None:
        super().__init__(scope)
        self.activation, self.activation_parameters = checked_activation(activation, activation_parameters, scope)

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Applies it to each element (softmax: along the last axis); (...) to (...)."""
        return apply_activation(inputs, self.activation, self.activation_parameters)


@register("flatten")
class Flatten(Component):
    """Makes one feature axis of all of them, in row-major order; leading ranks stay.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "flatten") -> None:
        super().__init__(scope)

    def create_variables(self, inputs: Any) -> None:
        """No variables; notes how many axes are features."""
        if not isinstance(inputs, Box):
            raise BuildError(
                "a Flatten layer takes one array",
                where=self.path,
                received=repr(inputs),
                fix="put an ObservationEncoder in front: it turns any space into one vector of features",
            )
        sizes = [axis for axis in inputs.shape if isinstance(axis, int)]
        self.feature_axes = len(inputs.shape)
        self.features = math.prod(sizes) if len(sizes) == self.feature_axes else None

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Flattens: (..., *features) to (..., F)."""
        leading = inputs.ndim - self.feature_axes
        features = math.prod(inputs.shape[leading:]) if self.features is None else self.features
        return ops.reshape(inputs, (*inputs.shape[:leading], features))


@register("concat")
class Concat(Component):
    """Joins the leaves of a container along their last axis, in the order of their paths.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "concat") -> None:
        super().__init__(scope)

    @graph_fn(flatten=True)
    def call(self, inputs: Any) -> Any:
        """Joins arrays (..., F_i), nested in dicts and tuples, to (..., sum of F_i)."""
        return ops.concat([inputs[path] for path in sorted(inputs)], axis=-1)


@register("layer_norm")
class LayerNorm(Component):
    """Layer normalization (Ba et al. 2016, https://arxiv.org/abs/1607.06450): each row by its own mean and deviation.

    Args:
        epsilon: Added to the variance.
        scope: Name within the owner.
    """

    def __init__(self, epsilon: float = 1e-5, scope: str = "layer-norm") -> None:
        super().__init__(scope)
        POSITIVE.check("epsilon", epsilon, scope)
        self.epsilon = epsilon

    def create_variables(self, inputs: Any) -> None:
        """Gain and bias, (F,) each."""
        space = float_features(inputs, self.path)
        if not space.shape:
            raise BuildError(
                "layer normalization needs a feature axis",
                where=self.path,
                received=repr(space),
                fix="put a layer with more than one unit in front",
            )
        self.gain = self.variable("gain", (space.shape[-1],), 1.0)
        self.bias = self.variable("bias", (space.shape[-1],), 0.0)

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Normalizes along the last axis; (..., F) to (..., F)."""
        centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        return centered / ops.sqrt(variance + self.epsilon) * self.gain.value + self.bias.value
